"""Process-wide switches of the decoders, held while samples are made and then put back."""

from collections.abc import Iterator
from contextlib import contextmanager

from preprocess.images.antialias import one_torch_thread


@contextmanager
def decoder_settings() -> Iterator[None]:
    """Hold the libraries' process-wide switches as decoding on threads of ours wants them.

    One thread for OpenCV and torch (the engine's own workers use the cores); no pixel limit in
    Pillow, so that `max_pixels` alone decides; no warning, log line or line on stderr about damage,
    which `decode_image` reports itself. All is put back at the end, for the sake of what else the
    process does. Without this results are the same up to Pillow's limit, unless a warning filter
    turns Pillow's warnings into errors.
    """
    import logging
    import warnings

    import cv2
    from PIL import Image

    threads = cv2.getNumThreads()
    limit, logger = Image.MAX_IMAGE_PIXELS, logging.getLogger("PIL")
    levels = logger.level, cv2.utils.logging.getLogLevel()
    with warnings.catch_warnings(), _silent_libtiff(), one_torch_thread():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        cv2.setNumThreads(1)
        Image.MAX_IMAGE_PIXELS = None
        logger.setLevel(logging.CRITICAL)
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        try:
            yield
        finally:
            cv2.setNumThreads(threads)
            Image.MAX_IMAGE_PIXELS = limit
            logger.setLevel(levels[0])
            cv2.utils.logging.setLogLevel(levels[1])


@contextmanager
def _silent_libtiff() -> Iterator[None]:
    """Keep libtiff from printing to stderr: its handlers are null inside.

    It is reached through Pillow's module, which links it. A Pillow with libtiff built in hides the
    symbols: then the lines stay.
    """
    import ctypes

    from PIL import _imaging

    pillow = ctypes.CDLL(_imaging.__file__)
    before = []
    for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
        if hasattr(pillow, name):
            setter = getattr(pillow, name)
            setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
            before.append((setter, setter(None)))
    try:
        yield
    finally:
        for setter, handler in before:
            setter(handler)
