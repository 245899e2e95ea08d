"""A report as Markdown, as LaTeX and as a page; only the page can be heard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..system.files import write_atomically
from .document import Figure, Report, notes
from .html_report import html_report
from .tables import Block, Cell, Group


def write(report: Report, folder: Path) -> list[Path]:
    """Write `report.md`, `report.tex` and `report.html`; figures are there already."""
    pages = {"report.md": markdown(report), "report.tex": latex(report), "report.html": html_report(report, folder)}
    for name, text in pages.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in pages]


def _headings(block: Block) -> list[str]:
    numbers = {judge: number for number, judge in enumerate(block.judges, 1)}
    return [c.title + (f" [{numbers[c.judge]}]" if c.judge else "") for c in block.columns]


def _notes(block: Block) -> list[str]:
    judges = "; ".join(f"[{number}] {judge}" for number, judge in enumerate(block.judges, 1))
    return [*([f"Judges: {judges}."] if judges else []), *notes(block)]


# Markdown


def markdown(report: Report) -> str:
    parts = [f"# {report.title}", report.text]
    for section in report.sections:
        parts += [f"## {section.title}", section.text]
        for item in section.items:
            if isinstance(item, Figure):
                parts += [f"![{panel.title}]({panel.stem}.svg)" for panel in item.panels]
                parts.append(f"*{item.caption}*")
            elif isinstance(item, Block):
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
                pictures = [rf"\includegraphics[width=.48\textwidth]{{{panel.stem}.pdf}}" for panel in item.panels]
                parts.append(_float("figure", "\n".join(pictures), item.caption))
            elif isinstance(item, Block):
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
