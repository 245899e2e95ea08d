"""A report as Markdown, LaTeX and one self-contained HTML page."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..files import write_atomically
from .tables import Block, Cell, Column, Group


@dataclass(frozen=True)
class Figure:
    """A picture beside the report, as PNG and PDF."""

    stem: str
    caption: str


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    items: tuple[Block | Figure, ...]


@dataclass(frozen=True)
class Report:
    title: str
    text: str
    sections: tuple[Section, ...]

    def write(self, folder: Path) -> list[Path]:
        """Write `report.md`, `report.tex` and `report.html`; figures are there already."""
        pages = {"report.md": markdown(self), "report.tex": latex(self), "report.html": page(self, folder)}
        for name, text in pages.items():
            write_atomically(folder / name, text.encode())
        return [folder / name for name in pages]


Item = TypeVar("Item")

REFERENCE_NOTE = "Reference rows from the paper: its judges, its test set, its models. Not measured here."


def _headings(block: Block) -> list[str]:
    numbers = {judge: number for number, judge in enumerate(block.judges, 1)}
    return [c.title + (f" [{numbers[c.judge]}]" if c.judge else "") for c in block.columns]


def _notes(block: Block) -> list[str]:
    judges = "; ".join(f"[{number}] {judge}" for number, judge in enumerate(block.judges, 1))
    own = [REFERENCE_NOTE] if block.reference else []
    return [*own, *([f"Judges: {judges}."] if judges else []), *block.notes]


# Markdown


def markdown(report: Report) -> str:
    parts = [f"# {report.title}", report.text]
    for section in report.sections:
        parts += [f"## {section.title}", section.text]
        for item in section.items:
            if isinstance(item, Figure):
                parts.append(f"![{item.caption}]({item.stem}.png)\n\n*{item.caption}* ([PDF]({item.stem}.pdf))")
            else:
                parts.append(markdown_table(item))
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(block: Block) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def text(cell: Cell) -> str:
        wrapped = {"best": f"**{cell.text}**", "second": f"<u>{cell.text}</u>", None: cell.text}[cell.mark]
        return wrapped.replace("<MASK>", "`<MASK>`") + (f" ({cell.detail})" if cell.detail else "")

    rule = line(["---"] + ["--:"] * (len(block.columns) - 1))
    lines = [line(_headings(block)), rule] if block.groups else []
    for group in block.groups:
        if group.title:
            lines.append(line([f"*{group.title}*"] + [""] * (len(block.columns) - 1)))
        lines += [line([text(cell) for cell in row]) for row in group.rows]
    notes = "\n".join(f"- {note}" for note in _notes(block))
    return "\n\n".join(part for part in (f"**{block.title}**", "\n".join(lines), notes) if part)


# LaTeX

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "→": r"$\rightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "×": r"$\times$",
    "τ": r"$\tau$",
    "†": r"$^\dagger$",
}


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def latex(report: Report) -> str:
    """A document that compiles by itself; its tables can be taken out."""
    parts = [
        r"\documentclass{article}",
        r"\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}",
        r"\usepackage{booktabs,graphicx}\usepackage[margin=2cm]{geometry}",
        r"\begin{document}",
        rf"\section*{{{_escape(report.title)}}}",
        _escape(report.text),
    ]
    for section in report.sections:
        parts += [rf"\subsection*{{{_escape(section.title)}}}", _escape(section.text)]
        for item in section.items:
            if isinstance(item, Figure):
                picture = rf"\includegraphics[width=\textwidth]{{{item.stem}.pdf}}"
                parts.append(_float("figure", picture, item.caption))
            else:
                parts.append(latex_table(item))
    return "\n\n".join(part for part in [*parts, r"\end{document}"] if part) + "\n"


def _float(kind: str, body: str, caption: str) -> str:
    return "\n".join(
        [rf"\begin{{{kind}}}[htbp]\centering", rf"\caption{{{_escape(caption)}}}", body, rf"\end{{{kind}}}"]
    )


def latex_table(block: Block) -> str:
    """One booktabs table with its notes in the caption."""
    caption = " ".join([f"{block.title}.", *_notes(block)])
    if not block.groups:
        return _escape(caption)
    width = len(block.columns)

    def text(cell: Cell) -> str:
        escaped = _escape(cell.text)
        wrapped = {"best": rf"\textbf{{{escaped}}}", "second": rf"\underline{{{escaped}}}", None: escaped}[cell.mark]
        return wrapped + (rf" {{\scriptsize ({_escape(cell.detail)})}}" if cell.detail else "")

    def rows(group: Group) -> str:
        title = rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_escape(group.title)}}}}} \\" if group.title else ""
        lines = [" & ".join(map(text, row)) + r" \\" for row in group.rows]
        return "\n".join([title, *lines] if title else lines)

    table = [
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        " & ".join(map(_escape, _headings(block))) + r" \\",
        r"\midrule",
        "\n\\midrule\n".join(map(rows, block.groups)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    body = "\\resizebox{\\textwidth}{!}{%\n" + "\n".join(table) + "\n}"
    return _float("table", body, caption)


# HTML

_STYLE = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def page(report: Report, folder: Path) -> str:
    """One file: style and pictures are inside it."""
    contents = "".join(
        f'<li><a href="#s{number}">{html.escape(section.title)}</a></li>'
        for number, section in enumerate(report.sections, 1)
    )
    body = []
    for number, section in enumerate(report.sections, 1):
        items = [_html_figure(item, folder) if isinstance(item, Figure) else html_table(item) for item in section.items]
        text = f"<p>{html.escape(section.text)}</p>" if section.text else ""
        body.append(f'<section id="s{number}"><h2>{html.escape(section.title)}</h2>{text}{"".join(items)}</section>')
    title = html.escape(report.title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main><h1>{title}</h1>"
        f"<p>{html.escape(report.text)}</p><nav><ol>{contents}</ol></nav>{''.join(body)}</main></body></html>\n"
    )


def _html_figure(figure: Figure, folder: Path) -> str:
    data = base64.b64encode((folder / f"{figure.stem}.png").read_bytes()).decode()
    caption = html.escape(figure.caption)
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
    )


def html_table(block: Block) -> str:
    """One table in a frame that scrolls sideways where the window is too narrow."""
    numbers = {judge: number for number, judge in enumerate(block.judges, 1)}

    def heading(column: Column) -> str:
        number = f"<sup>{numbers[column.judge]}</sup>" if column.judge else ""
        return f"<th>{html.escape(column.title)}{number}</th>"

    def cell(entry: Cell) -> str:
        text = html.escape(entry.text)
        detail = f"<small>{html.escape(entry.detail)}</small>" if entry.detail else ""
        return f"<td{f' class={entry.mark}' if entry.mark else ''}><span>{text}</span>{detail}</td>"

    def rows(group: Group) -> str:
        span = len(block.columns)
        title = f'<tr class="group"><th colspan="{span}">{html.escape(group.title)}</th></tr>' if group.title else ""
        return f"<tbody>{title}{_joined(group.rows, lambda row: f'<tr>{_joined(row, cell)}</tr>')}</tbody>"

    notes = _joined(
        [f"<sup>{number}</sup> {html.escape(judge)}" for judge, number in numbers.items()]
        + [html.escape(note) for note in ([REFERENCE_NOTE] if block.reference else []) + list(block.notes)],
        lambda note: f"<li>{note}</li>",
    )
    kind = "reference" if block.reference else "measured"
    table = (
        f'<div class="frame"><table><thead><tr>{_joined(block.columns, heading)}</tr></thead>'
        f"{_joined(block.groups, rows)}</table></div>"
    )
    return (
        f'<div class="table {kind}"><h3>{html.escape(block.title)}</h3>{table if block.groups else ""}'
        + (f"<ul>{notes}</ul>" if notes else "")
        + "</div>"
    )


def _joined(items: Sequence[Item], render: Callable[[Item], str]) -> str:
    return "".join(map(render, items))
