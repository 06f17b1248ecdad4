"""Every deliberate error of the project.

```
ShardsError                                  catch this at a program's edge
|- FormatError (ValueError)                  bytes are not what the format promises
|  |- VersionError                           written by a newer format
|  `- ChecksumError                          right size, wrong content
|- MissingShardError (FileNotFoundError)     the manifest names a file that is not there
|- IncompleteError                           shards and no manifest: the run did not finish
|- SelectionError (ValueError)               asked for a split, size or field that is not stored
`- preprocess.errors                         SourceError, SampleError, OutputError
```

A message says where (file, field, key), what came, what was expected and what to do.
"""


class ShardsError(Exception):
    """Base of every error that the project raises on purpose."""


class FormatError(ShardsError, ValueError):
    """Bytes on disk are not what the format promises."""


class VersionError(FormatError):
    """The dataset was written by a newer version of the format."""


class ChecksumError(FormatError):
    """A file has the right size and the wrong content."""


class MissingShardError(ShardsError, FileNotFoundError):
    """The manifest names a file that is not there."""


class IncompleteError(ShardsError):
    """The folder holds no committed dataset."""


class SelectionError(ShardsError, ValueError):
    """The caller asked for a split, size or field that the dataset does not hold."""
