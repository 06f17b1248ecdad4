"""`prep export`: a dataset of tokens -> another trainer's files."""

from pathlib import Path
from typing import Any

import click

from preprocess.commands.prepare import FOLDER


@click.command(short_help="Write tokens as the files of another trainer.")
@click.argument("path", type=FOLDER, metavar="OUT")
@click.argument("folder", type=FOLDER, metavar="FOLDER")
@click.option(
    "--to",
    "target",
    type=click.Choice(["nanogpt", "megatron", "llmc"]),
    required=True,
    help="nanogpt: train.bin, val.bin; megatron: .bin and .idx; llmc: headers and shards.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def export(path: Path, folder: Path, **options: Any) -> None:
    """Write the documents of a dataset of tokens as nanoGPT, Megatron-LM or llm.c read them."""
    from preprocess.commands.terminal import print_json, print_text
    from preprocess.tokens.export import export_tokens

    found = export_tokens(path, folder, options["target"])
    if options["as_json"]:
        print_json(
            {
                name: {
                    "files": [str(file) for file in exported.files],
                    "dtype": exported.dtype,
                    "documents": exported.documents,
                    "tokens": exported.tokens,
                }
                for name, exported in found.items()
            }
        )
        return
    if options["target"] == "nanogpt" and "validation" not in found:
        print_text("note: no validation split, so no val.bin; prepare with --validation 0.01")
    for name, exported in found.items():
        files = ", ".join(str(file.relative_to(folder)) for file in exported.files[:3])
        more = ", ..." if len(exported.files) > 3 else ""
        print_text(
            f"{name}: {exported.documents:,} documents, {exported.tokens:,} tokens "
            f"({exported.dtype}) in {folder}: {files}{more}"
        )
