"""NormalizedModel: targets, the loss inside, graph compilers and parallel wrappers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from loaders.errors import NormalizeError
from loaders.normalize import Normalize, NormalizedModel
from tests.process_groups import run_group

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def stored_images(dtype: torch.dtype) -> Tensor:
    values = np.random.default_rng(7).integers(0, torch.iinfo(dtype).max, (2, 3, 8, 6))
    return torch.from_numpy(values).to(dtype)


def model(loss: Any = None) -> NormalizedModel:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 5))
    return NormalizedModel(Normalize(MEAN, STD), backbone, loss)


def test_torch_func_grad_reaches_the_backbone() -> None:
    trained = model(nn.functional.cross_entropy)
    images, target = stored_images(torch.uint8), torch.tensor([1, 4], dtype=torch.uint8)
    parameters: dict[str, Tensor] = dict(trained.named_parameters())

    def loss(values: dict[str, Tensor]) -> Tensor:
        result: Tensor = torch.func.functional_call(trained, values, (images, target))
        return result

    assert all(g.abs().sum() > 0 for g in torch.func.grad(loss)(parameters).values())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_whole_model_with_its_loss_traces_as_one_graph(backend: str) -> None:
    trained = model(nn.functional.cross_entropy)
    images, target = stored_images(torch.uint16), torch.tensor([0, 3], dtype=torch.int32)
    compiled = torch.compile(trained, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(images, target), trained(images, target))


def test_without_a_target_the_model_predicts() -> None:
    predicting = model()
    images = stored_images(torch.uint8)
    assert torch.equal(predicting(images), predicting.backbone(predicting.normalize(images)))


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.int64],
    ids=str,
)
def test_narrow_targets_become_int64_before_the_loss(dtype: torch.dtype) -> None:
    trained = model(nn.CrossEntropyLoss())
    images, target = stored_images(torch.uint8), torch.tensor([1, 4])
    loss = trained(images, target.to(dtype))
    assert loss.shape == ()
    assert torch.equal(loss, trained(images, target))


def test_float_targets_stay_as_they_are() -> None:
    trained = model(nn.functional.mse_loss)
    target = torch.rand(2, 5)
    images = stored_images(torch.uint8)
    assert torch.equal(trained(images, target), nn.functional.mse_loss(trained(images), target))


def test_a_target_without_a_loss_is_refused() -> None:
    with pytest.raises(NormalizeError, match="the model has no loss"):
        model()(stored_images(torch.uint8), torch.tensor([1, 4]))


def test_data_parallel_gathers_one_loss_per_device() -> None:
    trained = model(nn.functional.cross_entropy)
    images, target = stored_images(torch.uint8), torch.tensor([1, 4], dtype=torch.uint8)
    parallel = nn.DataParallel(trained)  # every device there is; the model itself if there is none
    loss = parallel(images, target)
    assert loss.numel() == max(1, torch.cuda.device_count())
    loss.mean().backward()
    assert all(parameter.grad is not None for parameter in trained.parameters())


@pytest.mark.slow
def test_distributed_data_parallel_trains_it_and_sees_a_scalar(tmp_path: Path) -> None:
    run_group(tmp_path, DISTRIBUTED, 2, [[], []])


DISTRIBUTED = """
import copy
from tests.unit.loaders.test_normalized_model import model, stored_images

torch.manual_seed(3)
trained = model(torch.nn.functional.cross_entropy)
images, target = stored_images(torch.uint8), torch.tensor([1, 4], dtype=torch.uint8)
alone = copy.deepcopy(trained)
alone(images, target).backward()
parallel = torch.nn.parallel.DistributedDataParallel(trained)
loss = parallel(images[int(rank) :][:1], target[int(rank) :][:1])
assert loss.shape == ()
loss.backward()  # averages over the ranks, as the loss of both samples does
for ours, reference in zip(trained.parameters(), alone.parameters(), strict=True):
    torch.testing.assert_close(ours.grad, reference.grad)
"""
