"""What a sample holds of a photo at one size."""

from loaders.format.fields import TRANSFORM, FieldSpec
from preprocess.images.options import ImageOptions, size_name


def size_fields(chosen: ImageOptions, size: tuple[int, int], box_classes: int) -> list[FieldSpec]:
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
