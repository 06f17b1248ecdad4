"""What the process apart does: see `apart`."""

import gc
import json
import os
import signal
import sys
from dataclasses import asdict
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from preprocess.errors import SourceError
from preprocess.tokens.apart import MARK, leave_out_torch
from preprocess.tokens.loading import load_pretrained, named_ids, plain_content
from preprocess.tokens.tokenizer_source import TokenizerSource
from preprocess.tokens.tokenizer_tiktoken import TiktokenFile


def main() -> None:
    """Be that process: read which tokenizer it is, and write what transformers makes of it."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no result
    leave_out_torch()
    _leave_out_names_of_models()
    told: dict[str, Any] = {}
    try:  # before it is known which one is wanted
        from transformers import AutoTokenizer  # noqa: F401
    except Exception as error:  # noqa: BLE001 - a package that is broken raises anything
        told["error"] = f"transformers cannot be imported: {error}; install it again"
    described = sys.stdin.buffer.read()
    if described:
        told = told or _load(json.loads(described))
        try:
            with results:
                results.write(MARK + json.dumps(told).encode())
        except BrokenPipeError:
            pass  # nobody waits for it any more
    os._exit(0)  # to take all modules apart would keep the other process waiting


def _load(fields: dict[str, Any]) -> dict[str, Any]:
    """Load the tokenizer that `apart.ask` describes; return what `apart.answer` does."""
    tiktoken = fields["tiktoken"]
    fields["tiktoken"] = None if tiktoken is None else TiktokenFile(**tiktoken)
    fields |= {"path": Path(fields["path"]), "files": tuple(fields["files"])}
    try:
        pretrained = load_pretrained(TokenizerSource(**fields))
    except SourceError as error:
        return {"error": str(error)}
    return {
        "named": asdict(named_ids(pretrained)),
        "whole": pretrained.backend_tokenizer.to_str(),
        "content": plain_content(pretrained.backend_tokenizer),
    }


def _leave_out_names_of_models() -> None:
    """Put a package that runs no code of its own in the place of `transformers.models`.

    That code reads 1,700 files for the names in them, which `transformers` itself has done a moment
    before: a quarter of what this process takes. It runs if any of these names is asked for.
    """
    name = "transformers.models"
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def with_names(attribute: str) -> Any:
        loader.exec_module(package)  # puts another module in its place
        return getattr(sys.modules[name], attribute)

    package.__getattr__ = with_names  # type: ignore[method-assign]
    sys.modules[name] = package
