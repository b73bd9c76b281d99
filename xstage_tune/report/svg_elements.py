"""Elements of an SVG document: shapes by class, typeset text, and the colours of both reading modes."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from xstage_tune.report.typeset import typeset

_ADVANCE = 0.5  # mean width of a character of sans-serif text, in em

#: Ink of each colour slot on a light and on a dark page: the Okabe-Ito hues, told apart by all readers.
_INKS = (
    ("#0067a5", "#5eb5f0"),
    ("#d1500a", "#ff9254"),
    ("#00865f", "#3fcf9f"),
    ("#b0528f", "#e79ccb"),
    ("#9a6b00", "#f0bb4a"),
    ("#3d3d8f", "#a5a5f5"),
)
_NEUTRAL = ("#444b55", "#c3cad4")
_THEME = {  # class: property, (light, dark)
    "page": ("fill", ("#ffffff", "#14181d")),
    "strong": ("fill", ("#14181d", "#f1f4f7")),
    "text": ("fill", ("#3a414a", "#cbd2da")),
    "faint": ("fill", ("#6b7480", "#939daa")),
    "grid": ("stroke", ("#e8ebef", "#262c34")),
    "axis": ("stroke", ("#8b949f", "#6b7480")),
}


def ink(colour: int | None) -> str:
    """The class of a palette slot, or of the neutral ink."""
    return "n" if colour is None else f"c{colour}"


def add(parent: Xml.Element, tag: str, css_class: str | None, **attributes: float | str) -> Xml.Element:
    """Append ``<tag>``; underscores of attribute names become hyphens, numbers get one decimal."""
    element = Xml.SubElement(parent, tag, {"class": css_class} if css_class else {})
    for name, value in attributes.items():
        text = value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        element.set(name.replace("_", "-"), text)
    if tag != "tspan":  # white space inside a text would be drawn
        element.tail = "\n"
    return element


def write(
    parent: Xml.Element, text: str, x: float, y: float, css_class: str, *,
    size: float, weight: int | None = None, anchor: str | None = None,
) -> Xml.Element:  # fmt: skip
    """Append ``text``, typeset, with its baseline at ``y``."""
    element = add(parent, "text", css_class, x=x, y=y, font_size=size)
    if weight:
        element.set("font-weight", str(weight))
    if anchor:
        element.set("text-anchor", anchor)
    drop = size * 0.24
    baseline = 0.0  # of the text so far, below y
    for piece, lowered in typeset(text):
        span = add(element, "tspan", None, dy=(drop if lowered else 0.0) - baseline)
        baseline = drop if lowered else 0.0
        span.text = piece
        if lowered:
            span.set("font-size", f"{size * 0.75:.1f}")
    return element


def text_width(text: str, size: float) -> float:
    """Width of ``text`` in pixels, roughly."""
    return len(text) * size * _ADVANCE


def stylesheet() -> str:
    """Colours as classes: light ones, and the dark ones where the reader prefers those."""
    return (
        _colour_rules(dark=False)
        + ".hollow{stroke-width:1.5}.filled{stroke-width:0.6}.grid,.axis{stroke-width:1}"
        + ".pale{fill-opacity:0.45}.area{fill-opacity:0.16}"
        + f"@media (prefers-color-scheme: dark){{{_colour_rules(dark=True)}}}"
    )


def _colour_rules(*, dark: bool) -> str:
    rules = [f".{name}{{{prop}:{pair[dark]}}}" for name, (prop, pair) in _THEME.items()]
    for name, pair in [("n", _NEUTRAL), *((f"c{slot}", inks) for slot, inks in enumerate(_INKS))]:
        colour = pair[dark]
        rules.append(f".{name}{{stroke:{colour}}}")
        rules.append(f".{name}.filled{{fill:{colour}}}.{name}.bar,.{name}.area{{fill:{colour};stroke:none}}")
    page = _THEME["page"][1][dark]
    return "".join(rules) + f".hollow{{fill:{page}}}.filled{{stroke:{page}}}"
