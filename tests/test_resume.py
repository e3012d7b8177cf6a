"""Stopping a loader and going on: state_dict and load_state_dict."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import RandomSampler
from torchvision.transforms import v2

import gpupreload as gp

MOVES = [v2.Resize((12, 12)), v2.RandomCrop(8), v2.RandomHorizontalFlip(), v2.ToImage()]
FLOATS = [v2.ToDtype(torch.float32, scale=True), v2.RandomErasing()]
Batch = tuple[Tensor, ...]


def preload(root: Path, *steps: Any, seed: int | None = 6) -> gp.GPUPreloadDataset:
    """Preload twelve photos on the CPU, with random steps."""
    transform = v2.Compose([*MOVES, *FLOATS, *steps])
    return gp.preload(root, transform, device="cpu", seed=seed, progress=False)


@pytest.fixture(scope="module")
def drawn(photo_folder: Path) -> gp.GPUPreloadDataset:
    """Twelve photos with random steps."""
    return preload(photo_folder)


def rest(loader: gp.Loader, n_epochs: int) -> list[Batch]:
    """All batches up to an epoch."""
    found = []
    while loader.next_epoch < n_epochs:
        found += [tuple(part.clone() for part in batch) for batch in loader]
    return found


def assert_equal(one: list[Batch], two: list[Batch]) -> None:
    """Compare batches bit for bit."""
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def sampler() -> RandomSampler:
    """A sampler with a generator of its own, whose epochs are no function of anything."""
    return RandomSampler(range(12), num_samples=17, replacement=True)


SETTINGS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled": {"shuffle": True},
    "drop_last": {"shuffle": True, "drop_last": True},
    "weights": {"weights": [5.0] + [1.0] * 11},
    "mix": {"shuffle": True, "mix": v2.CutMix(num_classes=3)},
    "another seed": {"shuffle": True, "seed": 99},
    "rank": {"shuffle": True, "rank": 1, "world_size": 2},
    "channels_last": {"shuffle": True, "memory_format": torch.channels_last},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_rest_is_as_without_the_stop(
    drawn: gp.GPUPreloadDataset, settings: dict[str, Any]
) -> None:
    """After any batch, a new loader goes on with the very batches that would have come."""
    whole = rest(gp.Loader(drawn, 3, with_indices=True, **settings), 3)
    per_epoch = len(gp.Loader(drawn, 3, **settings))
    running = gp.Loader(drawn, 3, with_indices=True, **settings)
    for n_served in range(1, 2 * per_epoch + 1):
        if n_served % per_epoch == 1 % per_epoch:
            batches = iter(running)
        next(batches)
        state = json.loads(json.dumps(running.state_dict()))
        resumed = gp.Loader(drawn, 3, with_indices=True, **settings)
        resumed.load_state_dict(state)
        assert resumed.next_epoch == n_served // per_epoch
        assert_equal(rest(resumed, 3), whole[n_served:])


def test_a_batched_step_of_ones_own_goes_on(photo_folder: Path) -> None:
    """A step that draws for the whole batch draws for the same batches after the stop."""
    noisy = gp.batched(lambda images: images + torch.rand(len(images), 1, 1, 1))
    ours = preload(photo_folder, noisy)
    whole = rest(gp.Loader(ours, 5, shuffle=True), 1)
    running = gp.Loader(ours, 5, shuffle=True)
    next(iter(running))
    resumed = gp.Loader(ours, 5, shuffle=True)
    resumed.load_state_dict(running.state_dict())
    assert_equal(rest(resumed, 1), whole[1:])


def test_a_sampler_goes_on(drawn: gp.GPUPreloadDataset) -> None:
    """What a sampler gave for the epoch is kept, for nobody could ask it for the same again."""
    running = gp.Loader(drawn, 5, sampler=sampler())
    batches = iter(running)
    next(batches)
    state = running.state_dict()
    expected = [tuple(part.clone() for part in batch) for batch in batches]
    resumed = gp.Loader(drawn, 5, sampler=sampler())
    resumed.load_state_dict(state)
    assert_equal(rest(resumed, 1), expected)
    assert len(rest(resumed, 2)) == 4


def test_another_batch_size_from_the_next_epoch_on(drawn: gp.GPUPreloadDataset) -> None:
    """The interrupted epoch ends in its own batches; later ones come in the new size."""
    running = gp.Loader(drawn, 3, shuffle=True)
    next(iter(running))
    resumed = gp.Loader(drawn, 5, shuffle=True)
    resumed.load_state_dict(running.state_dict())
    assert_equal(rest(resumed, 1), rest(gp.Loader(drawn, 3, shuffle=True), 1)[1:])
    second = gp.Loader(drawn, 5, shuffle=True)
    second.set_epoch(1)
    assert_equal(rest(resumed, 2), rest(second, 2))


def test_before_the_first_batch(drawn: gp.GPUPreloadDataset) -> None:
    """A state of a loader that served nothing leads to its first epoch."""
    for state in (gp.Loader(drawn, shuffle=True).state_dict(),):
        resumed = gp.Loader(drawn, shuffle=True)
        resumed.load_state_dict(state)
        assert_equal(rest(resumed, 1), rest(gp.Loader(drawn, shuffle=True), 1))


def test_a_state_can_be_passed_on(drawn: gp.GPUPreloadDataset) -> None:
    """The state of a loader that was resumed, and served nothing since, is the same state."""
    running = gp.Loader(drawn, 3, shuffle=True)
    next(iter(running))
    resumed = gp.Loader(drawn, 3, shuffle=True)
    resumed.load_state_dict(running.state_dict())
    assert resumed.state_dict() == running.state_dict()
    assert (resumed.epoch, resumed.next_epoch) == (0, 0)


def test_an_epoch_left_early_goes_on_unless_passed_over(drawn: gp.GPUPreloadDataset) -> None:
    """After a break the state leads to the rest of the epoch, or to the one that is set."""
    running = gp.Loader(drawn, 3, shuffle=True)
    for _ in running:
        break
    assert running.state_dict()["n_batches"] == 1
    running.set_epoch(1)
    state = running.state_dict()
    assert (state["epoch"], state["n_batches"]) == (1, 0)


def test_set_epoch_forgets_what_was_resumed(drawn: gp.GPUPreloadDataset) -> None:
    """set_epoch after load_state_dict begins that epoch from its start."""
    running = gp.Loader(drawn, 3, shuffle=True)
    next(iter(running))
    running.load_state_dict(running.state_dict())
    running.set_epoch(0)
    assert len(rest(running, 1)) == 4


def test_the_seed_is_part_of_the_state(photo_folder: Path) -> None:
    """A run whose seed was drawn goes on with that seed, whatever the next process draws."""
    first, second = (preload(photo_folder, seed=None) for _ in range(2))
    assert first.seed != second.seed
    running = gp.Loader(first, 3, shuffle=True)
    next(iter(running))
    resumed = gp.Loader(second, 3, shuffle=True)
    resumed.load_state_dict(running.state_dict())
    assert resumed.seed == first.seed
    assert_equal(rest(resumed, 1), rest(gp.Loader(first, 3, shuffle=True), 1)[1:])


def test_another_number_of_processes_from_an_epochs_border(drawn: gp.GPUPreloadDataset) -> None:
    """After whole epochs one process goes on as three, which share the very same samples."""
    alone = gp.Loader(drawn, 3, shuffle=True)
    rest(alone, 1)
    found = []
    for rank in range(3):
        loader = gp.Loader(drawn, 2, shuffle=True, rank=rank, world_size=3, with_indices=True)
        loader.load_state_dict(alone.state_dict())
        for images, _, indices in loader:
            found += zip(indices.tolist(), images, strict=True)
    assert sorted(i for i, _ in found) == list(range(12))
    expected = drawn.replay(1, [i for i, _ in found])
    assert torch.equal(torch.stack([image for _, image in found]), expected)


OTHERS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "order": (
        {},
        "order 'shuffled', and this Loader has 'in order'",
        "shuffle, weights or sampler",
        "with the same",
    ),
    "drop_last": (
        {"shuffle": True, "drop_last": True},
        "drop_last False, and this Loader has True",
        "drop_last",
        "with the same",
    ),
    "world_size": (
        {"shuffle": True, "rank": 0, "world_size": 2},
        "world_size 1, and this Loader has 2",
        "processes",
        "with as many",
    ),
}


@pytest.mark.parametrize(("settings", "differ", "what", "how"), OTHERS.values(), ids=OTHERS)
def test_a_state_within_an_epoch_of_another_loader(
    drawn: gp.GPUPreloadDataset, settings: dict[str, Any], differ: str, what: str, how: str
) -> None:
    """Where the rest of the epoch would be another, resuming says why; at a border it works."""
    running = gp.Loader(drawn, 3, shuffle=True)
    batches = iter(running)
    next(batches)
    other = gp.Loader(drawn, 3, **settings)
    with pytest.raises(gp.ArgumentError) as raised:
        other.load_state_dict(running.state_dict())
    assert str(raised.value) == (
        f"state was saved after 1 batches of epoch 0 with {differ}; the rest of that epoch would "
        f"be another. Resume {how} {what}, or from a state that was saved at the end of an epoch."
    )
    list(batches)
    other.load_state_dict(running.state_dict())
    assert other.next_epoch == 1


def test_uneven_counts_where_there_are_several_processes(drawn: gp.GPUPreloadDataset) -> None:
    """What becomes of an uneven rest is a part of the state of several processes, not of one."""
    for world, refuses in ((1, False), (2, True)):
        settings = {"shuffle": True, "rank": 0, "world_size": world}
        running = gp.Loader(drawn, 3, uneven="drop", **settings)
        next(iter(running))
        other = gp.Loader(drawn, 3, uneven="exact", **settings)
        if refuses:
            with pytest.raises(gp.ArgumentError, match=r"with uneven 'drop', and this Loader has"):
                other.load_state_dict(running.state_dict())
        else:
            other.load_state_dict(running.state_dict())


def test_a_state_of_other_samples(drawn: gp.GPUPreloadDataset) -> None:
    """Two subsets of one size are told apart."""
    running = gp.Loader(drawn.subset([1, 2, 3, 4]), 3, shuffle=True)
    next(iter(running))
    with pytest.raises(gp.ArgumentError, match=r"^state was saved after 1 batches of epoch 0 with"):
        gp.Loader(drawn.subset([1, 2, 3, 5]), 3, shuffle=True).load_state_dict(running.state_dict())


@pytest.mark.parametrize("state", [None, 3, {}, {"epoch": 3}])
def test_what_is_no_state(drawn: gp.GPUPreloadDataset, state: Any) -> None:
    """Anything else than a state is refused."""
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(drawn).load_state_dict(state)
    what = type(state).__name__
    assert str(raised.value) == (f"state is {what}; expected what a Loader's state_dict() gave.")


def test_a_state_of_another_version(drawn: gp.GPUPreloadDataset) -> None:
    """A state of a later format is not guessed at."""
    state = gp.Loader(drawn).state_dict() | {"version": 2}
    with pytest.raises(gp.ArgumentError) as raised:
        gp.Loader(drawn).load_state_dict(state)
    assert str(raised.value) == (
        "state is of version 2; expected 1. Resume it with the release of gpupreload that saved it."
    )


TRAINING = """
import json, os, sys
import torch, torchvision.transforms.v2 as v2
import gpupreload as gp

photos, checkpoint, wait_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings = json.loads(sys.argv[4])
steps = [v2.Resize((12, 12)), v2.RandomCrop(8), v2.RandomHorizontalFlip(), v2.ToImage()]
steps += [v2.ToDtype(torch.float32, scale=True)]
train = gp.preload(photos, v2.Compose(steps), device="cpu", progress=False)  # its seed is drawn
loader = gp.Loader(train, 3, **settings)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
parts, step = {"model": model, "optimizer": optimizer, "loader": loader}, 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    step = saved.pop("step")
    for name, part in parts.items():
        part.load_state_dict(saved[name])
while loader.next_epoch < 5:
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        step += 1
        if step % 3 == 0:
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**state, "step": step}, checkpoint + ".part")
            os.replace(checkpoint + ".part", checkpoint)
        if step == wait_at:
            print("waiting", flush=True)
            sys.stdin.read()
print(json.dumps([step, model[1].weight.tolist()]))
"""


def test_training_that_is_killed_ends_as_if_it_had_not_been(
    photo_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Killed by SIGKILL, and resumed from a checkpoint every 3 steps: the same weights."""

    def arguments(name: str, wait_at: int, **seed: int) -> list[str]:
        settings = json.dumps({"weights": "balanced", **seed})
        return [str(photo_folder), str(tmp_path / name), str(wait_at), settings]

    def start(wait_at: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TRAINING, *arguments("killed", wait_at)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    killed = start(wait_at=7)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "waiting\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    seed = torch.load(tmp_path / "killed")["loader"]["seed"]  # the process that is gone drew it
    resumed = start(wait_at=-1)
    monkeypatch.setattr(sys, "argv", ["", *arguments("whole", -1, seed=seed)])
    exec(TRAINING, {})
    n_steps, weights = json.loads(capsys.readouterr().out)
    assert json.loads(resumed.communicate()[0]) == [n_steps, weights]
    assert n_steps == 20
