"""Every deliberate error of the project.

```
ShardsError                                  catch this at a program's edge
|- FormatError (ValueError)                  bytes are not what the format promises
|  |- VersionError                           written by a newer format
|  `- ChecksumError                          a file is of the right size, and not of the right bytes
|- MissingShardError (FileNotFoundError)     the manifest names a file that is not there
|- IncompleteError                           shards and no manifest: the run did not finish
|- SelectionError (ValueError)               asked for a split, size or field that is not stored
|- NormalizeError (ValueError)               statistics or images that cannot be normalized
|  `- ImageTypeError (TypeError)             the images are not stored integers
|- DeviceError (RuntimeError)                the device is not there, or was used out of turn
|  `- RingClosedError                        its buffers were given up
`- preprocess.errors                         SourceError, SampleError, OutputError
   `- preprocess.tokens.engines                     EngineError (SourceError)
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
    """A file has the promised size and other bytes than the manifest promises."""


class MissingShardError(ShardsError, FileNotFoundError):
    """The manifest names a file that is not there."""


class IncompleteError(ShardsError):
    """The folder holds no committed dataset."""


class SelectionError(ShardsError, ValueError):
    """The caller asked for a split, size or field that the dataset does not hold."""


class NormalizeError(ShardsError, ValueError):
    """Statistics that cannot normalize, or images that do not fit the statistics."""


class ImageTypeError(NormalizeError, TypeError):
    """The images are not stored integers."""


class DeviceError(ShardsError, RuntimeError):
    """The device is not there, or a ring was used out of turn."""


class RingClosedError(DeviceError):
    """The ring was closed; a gather thread that sees this has nothing more to do."""
