"""The page of all commands and options, from the commands themselves: docs/reference/cli.md.

python -m tests.unit.cli.reference
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from onthedot.cli import CommandGroup, main
from onthedot.cli.options import shared

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
BEGIN = "<!-- Below: written by `python -m tests.unit.cli.reference`. -->\n"


def commands(group: CommandGroup, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    if "" in group.lazy and (own := group.get_command(context, "")) is not None:
        yield from visible(own, click.Context(own, parent=context.parent, info_name=context.info_name))
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        if isinstance(command, CommandGroup):
            yield from commands(command, inner)
        else:
            yield from visible(command, inner)


def visible(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    if not command.hidden:
        yield context.command_path, command, context


def generated() -> str:
    with click.Context(main, info_name="onthedot", auto_envvar_prefix="ONTHEDOT") as context:
        parts = [section(*each) for each in commands(main, context)]
    return "\n".join(parts)


def section(path: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text = "\n".join([f"## {path}", "", f"`{usage}`", "", plain(command.help or ""), ""])
    own = [parameter for parameter in command.params if is_own(parameter)]
    if rows := [row(parameter, context) for parameter in own]:
        text += "\n".join(["", "| option | variable | default | meaning |", "|---|---|---|---|", *rows, ""])
    if names := sorted({name for parameter in command.params for name in parameter.opts} & shared_names()):
        text += f"\nAlso: {', '.join(f'`{name}`' for name in names)}.\n"
    return text


def shared_names() -> set[str]:
    """The options that most commands have; they are described once."""
    return {name for parameter in shared_parameters() for name in parameter.opts if name.startswith("--")}


def shared_parameters() -> list[click.Parameter]:
    return click.command()(shared("store", "name", "app", "json", "utc")(lambda: None)).params


def is_own(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and not parameter.hidden and not shared_names() & set(parameter.opts)


def row(parameter: click.Parameter, context: click.Context) -> str:
    assert isinstance(parameter, click.Option)
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if not parameter.is_flag:
        names += f" {kind(parameter, context)}"
    cells = [names, variable(parameter, context), default(parameter), plain(parameter.help or "")]
    return f"| {' | '.join(cells)} |"


def kind(option: click.Option, context: click.Context) -> str:
    if isinstance(option.type, click.Choice):
        return " · ".join(f"`{choice}`" for choice in option.type.choices)
    return option.make_metavar(context).replace("INTEGER RANGE", "NUMBER").replace("FLOAT RANGE", "NUMBER")


def variable(option: click.Option, context: click.Context) -> str:
    name = option.envvar
    if name is None and option.allow_from_autoenv and context.auto_envvar_prefix is not None:
        name = f"{context.auto_envvar_prefix}_{(option.name or '').upper()}"
    return f"`{name}`" if name else ""


def default(option: click.Option) -> str:
    if option.is_flag or option.default in (None, "", ()) or not isinstance(option.default, str | int | float):
        return ""
    return f"`{option.default:g}`" if isinstance(option.default, float) else f"`{option.default}`"


def plain(text: str) -> str:
    """Help as Markdown: paragraphs of one line, and no character that ends a cell."""
    paragraphs = [" ".join(part.split()) for part in text.replace("\b", "").split("\n\n")]
    return "\n\n".join(paragraphs).replace("|", "\\|").replace("<", "&lt;")


def page() -> str:
    """The page with a new second part."""
    return PAGE.read_text("utf-8").partition(BEGIN)[0] + BEGIN + "\n" + generated()


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
