"""``onthedot completion``: the script by which a shell completes commands and options."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from onthedot.supervisor.exit_codes import CommandError

_SHELLS = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the script by which SHELL completes commands, options and states. [the shell of $SHELL]

    \b
    bash:  echo 'eval "$(onthedot completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(onthedot completion zsh)"' >> ~/.zshrc
    fish:  onthedot completion fish > ~/.config/fish/completions/onthedot.fish
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in _SHELLS:
        raise CommandError(f"which shell? Name one: {', '.join(_SHELLS)}")
    found = get_completion_class(name)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "onthedot", "_ONTHEDOT_COMPLETE").source())
