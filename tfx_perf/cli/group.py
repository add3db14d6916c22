"""A group of subcommands whose help says what each does in a whole sentence."""

import sys

import click


class Group(click.Group):
    """A group that lists the first sentence of each subcommand; click cuts it off at the line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the subcommands, in as many lines as they need."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(sys.maxsize)) for name, each in commands if each]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
