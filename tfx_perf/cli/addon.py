"""`tfx-perf addon`: adds the four components to an existing TFX project."""

import pathlib
import shlex

import click

from tfx_perf.cli import terminal

_USUAL_SCRIPT = "local_runner.py"  # runs the pipeline in a project made from TFX's templates


@click.command("addon")
@click.argument("project", type=click.Path())
@click.option("--apply", is_flag=True, help="Make the changes; otherwise they are only shown.")
@click.option("--json", "as_json", is_flag=True, help="Files, notes and patch as JSON.")
def command(*, project: str, apply: bool, as_json: bool) -> None:
    """Says what to change in PROJECT so that its pipeline uses tfx-perf.

    PROJECT is its folder, or the file that defines its pipeline, with the line of the Trainer
    where there are several: pipeline.py:42. The output is a patch, for
    `git apply` or `patch -p1` in the project's folder; the project's code is read, not run.
    What was added before stays as it is.
    """
    from tfx_perf.templates import addon

    added = addon.addition(pathlib.Path(project))
    patch = added.patch()
    if apply:
        added.write()
    if as_json:
        terminal.show_json(
            {
                "project": str(added.project),
                "new_files": added.new_files,
                "changed": added.changed,
                "notes": added.notes,
                "already_added": not added.files,
                "applied": apply,
                "patch": patch,
            }
        )
        return
    if not apply:
        click.echo(patch, nl=False)
    if added.kept:
        click.echo(f"Already added: {', '.join(added.kept)}", err=True)
    for note in added.notes:
        click.echo(f"Note: {note}", err=True)
    if apply and added.files:
        click.echo(f"Written: {', '.join(added.files)} in {added.project}", err=True)
        is_usual = (added.project / _USUAL_SCRIPT).is_file()
        script = _USUAL_SCRIPT if is_usual else "SCRIPT"
        project = shlex.quote(str(added.project))
        click.echo(f"Next: cd {project} && tfx-perf run {script}", err=True)
