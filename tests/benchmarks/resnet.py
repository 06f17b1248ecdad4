"""ResNet-50 out of torch's layers, for machines without torchvision.

Source:
    He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2015, table 1; the stride
    of a block is in its 3x3 layer, as in torchvision.
"""

import torch
from torch import Tensor, nn

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_EXPANSION = 4


def _conv(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class _Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * _EXPANSION
        self.first = _conv(inputs, width, 1)
        self.second = _conv(width, width, 3, stride)
        self.third = _conv(width, outputs, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.second(torch.relu(self.first(x))))
        return torch.relu(self.third(inner) + self.shortcut(x))


def resnet50(classes: int, *, part: int = 1) -> nn.Module:
    """Return ResNet-50, or one whose layers have a `part`-th of its channels."""
    channels = 64 // part
    layers: list[nn.Module] = [_conv(3, channels, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for stage, (width, blocks) in enumerate(_STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            layers.append(_Block(channels, width // part, stride))
            channels = width // part * _EXPANSION
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers, *head)
