"""WholeNumber: options and arguments that are numbers of something."""

from typing import Any

import click

from tfx_perf import errors


class WholeNumber(click.IntRange):
    """A whole number within limits, which says what it expects as all of tfx-perf does."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Returns the number.

        Raises:
            UserError: it is none, or beyond the limits.
        """
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            least = "" if self.min is None else f" of at least {self.min}"
            limits = least if self.max is None else f" from {self.min or 0} to {self.max}"
            name = max(param.opts, key=len) if param else "value"
            raise errors.UserError(
                f"Expected a whole number{limits}. Received: {name}={value}."
            ) from error
