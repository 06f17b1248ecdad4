"""Scripts of the contenders in `tokens_peers`: each makes token ids from JSON lines its own way.

Arguments of each: text, folder for its output (not there yet), tokenizer folder, workers; and for a
tool that is run from its repository, that.
"""

from pathlib import Path

PREP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from preprocess.cli import main
text, out, tokenizer, workers = sys.argv[1:]
sys.argv[1:] = ["tokens", text, out, "--tokenizer", tokenizer, "--workers", workers]
main()
"""

# As the documentation of `datasets` shows: a batched map with the fast tokenizer, saved as Arrow.
DATASETS = """
import sys
from datasets import load_dataset
from transformers import PreTrainedTokenizerFast
text, out, folder, workers = sys.argv[1:]
if __name__ == "__main__":
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    end = tokenizer.eos_token_id
    def encode(batch):
        ids = tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=False)
        return {"input_ids": [one + [end] for one in ids["input_ids"]]}
    data = load_dataset("json", data_files=text, split="train", cache_dir=out + "/cache")
    data = data.map(encode, batched=True, num_proc=int(workers), remove_columns=data.column_names)
    data.save_to_disk(out + "/ids")
"""

# The steps of nanoGPT's preparation: one document a call with tiktoken, a map over processes, and a
# memory map that is filled from numpy batches. tiktoken would download GPT-2's ranks; here they are
# those of the tokenizer given, which must be GPT-2's.
NANOGPT = """
import json, sys
import numpy as np, tiktoken
from datasets import load_dataset
text, out, folder, workers = sys.argv[1:]
def ranks_of(vocabulary):
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    byte_of = {chr(byte): byte for byte in plain}
    byte_of |= {chr(256 + index): byte for index, byte in enumerate(rest)}
    return {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items()}
if __name__ == "__main__":
    vocabulary = json.load(open(folder + "/tokenizer.json"))["model"]["vocab"]
    end = vocabulary.pop("<|endoftext|>")
    pattern = (r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++"
               r"|\\s++$|\\s+(?!\\S)|\\s")
    encoding = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks_of(vocabulary),
                                 special_tokens={"<|endoftext|>": end})
    def encode(document):
        ids = encoding.encode_ordinary(document["text"]) + [end]
        return {"ids": ids, "len": len(ids)}
    data = load_dataset("json", data_files=text, split="train", cache_dir=out + "/cache")
    data = data.map(encode, num_proc=int(workers), remove_columns=data.column_names)
    total = int(np.sum(data["len"], dtype=np.uint64))
    stored = np.memmap(out + "/train.bin", np.uint16, "w+", shape=(total,))
    batches, at = min(1024, len(data)), 0
    for index in range(batches):
        shard = data.shard(num_shards=batches, index=index, contiguous=True).with_format("numpy")
        ids = np.concatenate(shard["ids"])
        stored[at : at + len(ids)] = ids
        at += len(ids)
    stored.flush()
"""

DATATROVE = """
import json, sys
from pathlib import Path
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
text, out, folder, workers = sys.argv[1:]
if __name__ == "__main__":
    end = json.load(open(folder + "/tokenizer_config.json"))["eos_token"]
    end = end["content"] if isinstance(end, dict) else end
    # datatrove shares out files, so there must be as many as there are workers.
    lines = Path(text).read_bytes().splitlines(keepends=True)
    parts = Path(out + "/parts")
    parts.mkdir(parents=True)
    for index in range(int(workers)):
        share = lines[index * len(lines) // int(workers) : (index + 1) * len(lines) // int(workers)]
        (parts / f"{index}.jsonl").write_bytes(b"".join(share))
    LocalPipelineExecutor(
        pipeline=[JsonlReader(str(parts)),
                  DocumentTokenizer(out + "/ids", folder + "/tokenizer.json", eos_token=end,
                                    shuffle_documents=False)],
        tasks=int(workers), workers=int(workers), logging_dir=out + "/logs",
    ).run()
"""

# The steps of Megatron-LM's tools/preprocess_data.py with megatron-core's own builder: one document
# a call in a pool of processes. Without the imports of its training package, which take seconds.
MEGATRON = """
import json, multiprocessing, sys
from pathlib import Path
text, out, folder, workers = sys.argv[1:]
def start():
    global tokenizer
    from transformers import PreTrainedTokenizerFast
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
def encode(line):
    ids = tokenizer.encode(json.loads(line)["text"], add_special_tokens=False)
    return ids + [tokenizer.eos_token_id]
if __name__ == "__main__":
    import numpy as np
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder
    start()
    Path(out).mkdir(parents=True)
    builder = IndexedDatasetBuilder(out + "/ids.bin", dtype=DType.optimal_dtype(len(tokenizer)))
    with multiprocessing.Pool(int(workers), initializer=start) as pool, open(text, "rb") as lines:
        for ids in pool.imap(encode, lines, 32):
            builder.add_document(ids, [len(ids)])
    builder.finalize(out + "/ids.idx")
"""

# Megatron-LM's own tools, unchanged and with the imports of its training package. Of Python 3.12
# they need one name only, so an older one serves where PyTorch's build for CPUs is for that.
MEGATRON_TOOL = """
import os, runpy, sys, typing
text, out, folder, workers, repository = sys.argv[1:]
if not hasattr(typing, "override"):
    typing.override = lambda method: method
os.environ |= {{"HF_HUB_OFFLINE": "1", "RAYON_NUM_THREADS": workers}}
os.makedirs(out)
sys.path.insert(0, repository)
sys.argv = [repository + "/tools/{tool}", "--input", text, "--output-prefix", out + "/ids",
            "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", folder,
            "--append-eod", {options}]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
MEGATRON_SLOW = MEGATRON_TOOL.format(tool="preprocess_data.py", options='"--workers", workers')
MEGATRON_FAST = MEGATRON_TOOL.format(tool="preprocess_data_fast.py", options='"--use-gigatoken"')
