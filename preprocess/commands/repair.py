"""`prep repair`: options -> one call -> report."""

from pathlib import Path
from typing import Any

import click

from preprocess.commands.prepare import FOLDER


@click.command(short_help="Make the bad files of a dataset again.")
@click.argument("path", type=FOLDER, metavar="OUT")
@click.argument("source", type=FOLDER, metavar="SRC")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="As when it was prepared.")
@click.option("--tokenizer", metavar="NAME|PATH", help="Where the tokenizer is now, if elsewhere.")
@click.option("--like", type=FOLDER, metavar="TRAIN_OUT", help="Where that dataset is now.")
@click.option("--masks", type=FOLDER, metavar="DIR", help="Where the masks of photos are now.")
@click.option("--boxes", type=FOLDER, metavar="PATH", help="Where the boxes of photos are now.")
@click.option("--metadata", type=FOLDER, metavar="FILE", help="Where the table of photos is now.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def repair(ctx: click.Context, /, path: Path, source: Path, **options: Any) -> None:
    """Make the missing, cut and changed files of a dataset again, byte for byte as they were.

    SRC is what OUT was made from, as it was then; the options are those that OUT has recorded. All
    checksums are compared first. A file is put in its place only when it is what the manifest
    promises; a source that has changed is refused.
    """
    from preprocess.commands.terminal import check_text, print_json, print_text
    from preprocess.recorded import Moved
    from preprocess.repair import repair_files

    moved = Moved(
        tokenizer=options["tokenizer"],
        like=options["like"],
        masks=options["masks"],
        boxes=options["boxes"],
        metadata=options["metadata"],
    )
    report = repair_files(path, source, moved, options["workers"])
    if options["as_json"]:
        print_json(report.to_json())
    else:
        for file in report.repaired:
            print_text(f"{file}: made again")
        print_text(check_text(report.check))
    if report.check.problems:
        ctx.exit(1)
