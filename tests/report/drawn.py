"""What a plot shows, read from its SVG."""

import re


def texts(svg):
    """Returns every text of a plot, from comments: matplotlib draws letters as paths."""
    return [text.strip() for text in re.findall(r"<!-- (.+?) -->", svg, flags=re.DOTALL)]


def ticks(svg, axis="y"):
    """Returns the labels at an axis, from the axis' group."""
    number = {"x": 1, "y": 2}[axis]
    group = svg.partition(f'<g id="matplotlib.axis_{number}">')[2]
    group = group.partition('<g id="matplotlib.axis_2">')[0] if number == 1 else group
    return [
        texts(tick)[0] for tick in re.split(rf'<g id="{axis}tick_\d+">', group)[1:] if texts(tick)
    ]


def dots(svg):
    """Returns how high the dots of the first kind are, as shares of the axes' height."""
    background = svg.partition('<g id="patch_2">')[2]
    corners = [float(y) for y in re.findall(r"[ML] \S+ (\S+)", background.partition('"/>')[0])]
    top, bottom = min(corners), max(corners)
    scattered = svg.partition('<g id="PathCollection_1">')[2].partition("\n   </g>")[0]
    drawn = re.findall(r'<use xlink:href="#\S+" x="(\S+)" y="(\S+)"', scattered)
    return [(bottom - float(y)) / (bottom - top) for _, y in drawn]
