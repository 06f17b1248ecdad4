"""What a sample holds of a photo."""

from functools import lru_cache

from loaders.format.fields import TRANSFORM, FieldSpec
from preprocess.images.options import ImageOptions, size_name


@lru_cache(maxsize=8)
def sample_fields(
    chosen: ImageOptions, *, key_nbytes: int, classes: int, box_classes: int, label_classes: int
) -> tuple[FieldSpec, ...]:
    """Return the fields of a sample, made once: they are asked for with each photo.

    Args:
        chosen: The user's options.
        key_nbytes: Bytes of the longest key.
        classes: Classes of the dataset; 0 stores no label.
        box_classes: Classes of boxes.
        label_classes: Classes of which a photo may have several.
    """
    found: list[FieldSpec] = []
    for size in chosen.sizes:
        found += _size_fields(chosen, size, box_classes)
    if classes:
        found.append(FieldSpec(name="label", dtype=narrowest(classes), shape=(), role="label"))
    found += value_fields(chosen, label_classes)
    found.append(FieldSpec(name="key", dtype="uint8", shape=(key_nbytes,), role="key"))
    if chosen.pages == "all":
        found.append(FieldSpec(name="page", dtype="uint32", shape=(), role="page"))
    return tuple(found)


@lru_cache(maxsize=8)
def value_fields(chosen: ImageOptions, label_classes: int) -> tuple[FieldSpec, ...]:
    """Return the fields whose values the metadata hold.

    Args:
        chosen: The user's options.
        label_classes: Classes of which a photo may have several.
    """
    found = []
    if label_classes:
        shape = (label_classes,)
        found.append(FieldSpec(name="labels", dtype="uint8", shape=shape, role="labels"))
    if chosen.metadata is not None and chosen.metadata.targets:
        shape = (len(chosen.metadata.targets),)
        found.append(FieldSpec(name="targets", dtype="float32", shape=shape, role="targets"))
    return tuple(found)


def _size_fields(chosen: ImageOptions, size: tuple[int, int], box_classes: int) -> list[FieldSpec]:
    """Return the fields of one size: the image, and its mask, boxes and transform if there are any.

    Args:
        chosen: The user's options.
        size: The named size, width and height.
        box_classes: Classes of boxes.
    """
    name, (width, height) = size_name(size), chosen.stored(size)
    ragged = chosen.is_variable
    found = [
        FieldSpec(
            name=f"image_{name}",
            dtype=f"uint{chosen.depth}",
            shape=(chosen.channels,) if ragged else (height, width, chosen.channels),
            role="image",
            ragged=ragged,
            encoding=chosen.storage.pictures,
        )
    ]
    if chosen.masks is not None:
        found.append(
            FieldSpec(
                name=f"mask_{name}",
                dtype=f"uint{chosen.mask_depth}",
                shape=() if ragged else (height, width),
                role="pixel_labels",
                ragged=ragged,
                encoding=chosen.storage.masks,
            )
        )
    if chosen.boxes is not None:
        labels = narrowest(box_classes)
        boxes, of_boxes = f"boxes_{name}", f"box_labels_{name}"
        found += [
            FieldSpec(name=boxes, dtype="float32", shape=(4,), role="boxes", ragged=True),
            FieldSpec(name=of_boxes, dtype=labels, shape=(), role="box_labels", ragged=True),
        ]
    if chosen.has_transforms:
        transform = f"transform_{name}"
        found.append(
            FieldSpec(name=transform, dtype="uint32", shape=(TRANSFORM,), role="transform")
        )
    return found


def narrowest(classes: int) -> str:
    """Return the type of labels of so many classes."""
    return "uint8" if classes <= 1 << 8 else "uint16"
