"""A report as one HTML file that needs nothing else: style, script, pictures and sound are inside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..browser import inline
from .document import Example, Figure, Panel, Report, Section, Version, notes
from .tables import Block, Cell, Column, Group

Item = TypeVar("Item")

_HERE = Path(__file__).parent
_STYLE = (_HERE / "report.css").read_text(encoding="utf-8")
_SCRIPT = (_HERE / "report.js").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""Whatever a name in a report says, nothing is fetched and nothing is sent."""

_LISTEN = (
    "All versions run together and repeat, so switching keeps the instant. Keys: Space plays and pauses, 0 is the "
    "reference, 1 to 9 the systems. A click on a spectrogram goes there. Values are those of this utterance."
)


def html_report(report: Report, folder: Path) -> str:
    """folder: where the figures are."""
    contents = "".join(
        f'<li><a href="#s{number}">{html.escape(section.title)}</a></li>'
        for number, section in enumerate(report.sections, 1)
    )
    body = "".join(_section(number, section, folder) for number, section in enumerate(report.sections, 1))
    title = html.escape(report.title)
    script = f"{inline(['player.js', 'spectrogram.js'])}\n{_SCRIPT}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main><h1>{title}</h1>"
        f"<p>{html.escape(report.text)}</p>{f'<nav><ol>{contents}</ol></nav>' if len(report.sections) > 1 else ''}"
        f'{body}</main><script type="module">{script}</script></body></html>\n'
    )


def _section(number: int, section: Section, folder: Path) -> str:
    items = []
    for item in section.items:
        if isinstance(item, Figure):
            items.append(_figure(item, folder))
        elif isinstance(item, Example):
            items.append(_example(item))
        else:
            items.append(html_table(item))
    text = f"<p>{html.escape(section.text)}</p>" if section.text else ""
    if any(isinstance(item, Example) for item in section.items):
        text += f'<p class="hint">{_LISTEN}</p>'
    return f'<section id="s{number}"><h2>{html.escape(section.title)}</h2>{text}{"".join(items)}</section>'


def _figure(figure: Figure, folder: Path) -> str:
    def panel(of: Panel) -> str:
        data = base64.b64encode((folder / f"{of.stem}.svg").read_bytes()).decode()
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(of.title)}">'

    pictures = _joined(figure.panels, panel)
    return (
        f'<figure><div class="panels">{pictures}</div><figcaption>{html.escape(figure.caption)}</figcaption></figure>'
    )


def _example(example: Example) -> str:
    """A row for each version; the script makes them play. Sounds are text until then."""

    def version(of: Version) -> str:
        sound = base64.b64encode(of.sound).decode()
        values = _joined(
            of.values,
            lambda pair: f"<div><dt>{html.escape(pair[0])}</dt><dd>{html.escape(pair[1])}</dd></div>",
        )
        heard = f'<p class="heard">Recognised: {html.escape(of.heard)}</p>' if of.heard else ""
        return (
            f'<li data-sound="{sound}"><button type="button" class="hear" aria-pressed="false">{html.escape(of.title)}'
            '</button><div class="picture"><canvas aria-hidden="true"></canvas><div class="head"></div></div>'
            f"<dl>{values}</dl>{heard}</li>"
        )

    return (
        '<article class="example"><header><button type="button" class="play">Play</button>'
        f'<h3>{html.escape(example.title)}</h3><span class="time"></span></header>'
        f"<ol>{_joined(example.versions, version)}</ol></article>"
    )


def html_table(block: Block) -> str:
    """One table in a frame that scrolls sideways where the window is too narrow; the script makes it sortable."""
    numbers = {judge: number for number, judge in enumerate(block.judges, 1)}

    def heading(column: Column) -> str:
        number = f"<sup>{numbers[column.judge]}</sup>" if column.judge else ""
        return f'<th scope="col">{html.escape(column.title)}{number}</th>'

    def cell(entry: Cell) -> str:
        text = html.escape(entry.text)
        detail = f"<small>{html.escape(entry.detail)}</small>" if entry.detail else ""
        value = "" if entry.value is None else f' data-value="{entry.value:.9g}"'
        return f"<td{f' class={entry.mark}' if entry.mark else ''}{value}><span>{text}</span>{detail}</td>"

    def rows(group: Group) -> str:
        span = len(block.columns)
        title = f'<tr class="group"><th colspan="{span}">{html.escape(group.title)}</th></tr>' if group.title else ""
        return f"<tbody>{title}{_joined(group.rows, lambda row: f'<tr>{_joined(row, cell)}</tr>')}</tbody>"

    below = _joined(
        [f"<sup>{number}</sup> {html.escape(judge)}" for judge, number in numbers.items()]
        + [html.escape(note) for note in notes(block)],
        lambda note: f"<li>{note}</li>",
    )
    kind = "reference" if block.reference else "measured"
    table = (
        f'<div class="frame" tabindex="0"><table><thead><tr>{_joined(block.columns, heading)}</tr></thead>'
        f"{_joined(block.groups, rows)}</table></div>"
    )
    return (
        f'<div class="table {kind}"><h3>{html.escape(block.title)}</h3>{table if block.groups else ""}'
        + (f"<ul>{below}</ul>" if below else "")
        + "</div>"
    )


def _joined(items: Sequence[Item], render: Callable[[Item], str]) -> str:
    return "".join(map(render, items))
