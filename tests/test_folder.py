"""A tree on disk: the classes and samples of ImageFolder, and a reason for every other file."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS

import gpupreload as gp
from gpupreload import folder
from gpupreload.errors import ArgumentError, FolderError
from gpupreload.folder import scan

SUFFIXES = ".jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp"


def plant(root: Path, *names: str) -> Path:
    """Make empty files, and folders for names that end in a slash, below `root`."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_bytes(b"")
    return root


def samples(root: Path, listing: folder.Folder) -> list[str]:
    """The samples' paths below the root."""
    return [Path(path).relative_to(root).as_posix() for path, _ in listing.samples]


def reasons(root: Path, listing: folder.Folder) -> dict[str, str]:
    """The reason for each path passed over, by its path below the root."""
    return {Path(p.path).relative_to(root).as_posix(): p.reason for p in listing.passed_over}


def message(root: object, **options: object) -> str:
    """The text of the `FolderError` that listing a folder raises."""
    with pytest.raises(FolderError) as caught:
        scan(root, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_extensions_are_torchvisions() -> None:
    """The suffixes of images are those of ImageFolder."""
    assert folder.IMAGE_EXTENSIONS == IMG_EXTENSIONS


ORDINARY = [
    ["cat/1.jpg", "cat/10.JPG", "cat/2.png", "dog/a.webp", "owl/b.tiff"],
    ["cat/sub/1.jpg", "cat/sub b/1.jpg", "cat/sub/deep/1.jpg", "cat/2.jpg", "dog/x/1.pgm"],
    ["b/1.jpg", "B/1.jpg", "ä/1.jpg", "10/1.jpg", "9/1.jpg", "a b/1.jpg"],
    ["cat/1.jpg", "cat/notes.txt", "cat/empty/", "dog/1.bmp", "readme.md"],
]


@pytest.mark.parametrize("names", ORDINARY, ids=["flat", "nested", "names", "other files"])
@pytest.mark.parametrize("form", ["text", "path", "slash", "relative"])
def test_ordinary_trees_are_listed_as_imagefolder_lists_them(
    tmp_path: Path, names: Sequence[str], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes, numbers, paths and their order are ImageFolder's, however the root is written."""
    plant(tmp_path / "root", *names)
    monkeypatch.chdir(tmp_path)
    forms = {"text": f"{tmp_path}/root", "path": tmp_path / "root", "slash": f"{tmp_path}/root//"}
    root = forms.get(form, "root")
    expected, listing = ImageFolder(root), scan(root)
    assert list(listing.classes) == expected.classes
    assert listing.class_to_idx == expected.class_to_idx
    assert list(listing.samples) == expected.samples


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(
        st.lists(st.text("ab1 -_.é", min_size=1, max_size=3), min_size=2, max_size=4),
        min_size=1,
        max_size=12,
    )
)
def test_any_tree_without_hidden_names_is_listed_as_imagefolder_lists_it(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[str]]
) -> None:
    """Whatever the names and depths, samples and order are ImageFolder's."""
    root = tmp_path_factory.mktemp("tree")
    for path in parts:
        if not any(part.startswith(".") for part in path):
            plant(root, "/".join(f"{part}d" for part in path[:-1]) + f"/{path[-1]}.jpg")
    plant(root, "zoo/1.jpg")
    assert list(scan(root).samples) == ImageFolder(root).samples


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that begins with ~ is the user's home, as for ImageFolder."""
    plant(tmp_path, "photos/cat/1.jpg")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert list(scan("~/photos").samples) == ImageFolder("~/photos").samples


def test_hidden_and_system_files_are_never_classes_or_samples(tmp_path: Path) -> None:
    """Names that begin with a dot, and what operating systems leave, are passed over by reason."""
    plant(
        tmp_path,
        "cat/1.jpg",
        ".ipynb_checkpoints/1.jpg",
        "__MACOSX/cat/1.jpg",
        "cat/._1.jpg",
        "cat/.ipynb_checkpoints/deep/2.jpg",
        "cat/Thumbs.db",
        "desktop.ini",
        ".DS_Store",
    )
    listing = scan(tmp_path)
    assert listing.classes == ("cat",)
    assert samples(tmp_path, listing) == ["cat/1.jpg"]
    assert reasons(tmp_path, listing) == {
        ".ipynb_checkpoints/1.jpg": "in a hidden folder, .ipynb_checkpoints",
        "__MACOSX/cat/1.jpg": "in a system folder, __MACOSX",
        "cat/._1.jpg": "a hidden file",
        "cat/.ipynb_checkpoints/deep/2.jpg": "in a hidden folder, .ipynb_checkpoints",
        "cat/Thumbs.db": "a system file",
        "desktop.ini": "a system file",
        ".DS_Store": "a hidden file",
    }


def test_a_hidden_folder_may_be_the_root(tmp_path: Path) -> None:
    """Only names below the root are judged, so a data set may lie in a cache folder."""
    root = plant(tmp_path / ".cache", "cat/1.jpg")
    assert samples(root, scan(root)) == ["cat/1.jpg"]


def test_other_suffixes_and_places_are_named(tmp_path: Path) -> None:
    """What is no image, and what lies in no class folder, is passed over with the reason."""
    plant(tmp_path, "cat/1.jpg", "cat/a.GIF", "cat/b.gif", "cat/readme", "labels.csv", "2.jpg")
    listing = scan(tmp_path)
    assert reasons(tmp_path, listing) == {
        "2.jpg": "beside the class folders, in none of them",
        "labels.csv": "beside the class folders, in none of them",
        "cat/a.GIF": "its suffix .gif is not among the extensions",
        "cat/b.gif": "its suffix .gif is not among the extensions",
        "cat/readme": "it has no suffix, which is not among the extensions",
    }
    assert Counter(p.kind for p in listing.passed_over) == {"root": 2, "suffix": 3}


def test_the_caller_may_name_other_suffixes(tmp_path: Path) -> None:
    """`extensions` replaces the suffixes, in any case, with or without their dot."""
    plant(tmp_path, "cat/1.jpg", "cat/2.gif", "cat/3.AVIF")
    assert samples(tmp_path, scan(tmp_path, extensions=("GIF", ".avif"))) == [
        "cat/2.gif",
        "cat/3.AVIF",
    ]


def test_a_link_that_leads_back_up_is_not_followed(tmp_path: Path) -> None:
    """Links to a folder above, within the tree or over its top, add no sample."""
    root = plant(tmp_path / "root", "cat/deep/1.jpg", "dog/1.jpg")
    (root / "cat/deep/up").symlink_to(root / "cat")
    (root / "dog/top").symlink_to(root)
    (root / "above").symlink_to(tmp_path)
    listing = scan(root)
    assert listing.classes == ("cat", "dog")
    assert samples(root, listing) == ["cat/deep/1.jpg", "dog/1.jpg"]
    assert reasons(root, listing) == {
        "cat/deep/up": f"a link that leads back up to {root / 'cat'}",
        "dog/top": f"a link that leads back up to {root}",
        "above": f"a link that leads back up to {tmp_path}",
    }


def test_a_folder_is_counted_where_it_lies(tmp_path: Path) -> None:
    """A link to a class folder is no class, even where its name comes first."""
    plant(tmp_path, "cat/1.jpg", "dog/1.jpg")
    (tmp_path / "a link").symlink_to("cat")
    listing = scan(tmp_path)
    assert listing.classes == ("cat", "dog")
    assert samples(tmp_path, listing) == ["cat/1.jpg", "dog/1.jpg"]
    assert reasons(tmp_path, listing) == {
        "a link": f"another way into {tmp_path / 'cat'}, whose files are counted there"
    }


def test_folders_and_files_outside_are_reached_by_links_once(tmp_path: Path) -> None:
    """A link to something outside is followed, a second one to the same is passed over."""
    plant(tmp_path / "store", "cats/1.jpg", "cats/inner/2.jpg", "3.jpg")
    root = plant(tmp_path / "root", "dog/1.jpg")
    (root / "cat").symlink_to(tmp_path / "store/cats")
    (root / "dog/a cat").symlink_to(tmp_path / "store/cats/inner")
    (root / "dog/3.jpg").symlink_to(tmp_path / "store/3.jpg")
    (root / "dog/4.jpg").symlink_to(tmp_path / "store/3.jpg")
    listing = scan(root)
    assert listing.classes == ("cat", "dog")
    assert samples(root, listing) == ["cat/1.jpg", "cat/inner/2.jpg", "dog/1.jpg", "dog/3.jpg"]
    assert reasons(root, listing) == {
        "dog/4.jpg": f"the same file as {root / 'dog/3.jpg'}, which is counted",
        "dog/a cat": f"another way into {root / 'cat/inner'}, whose files are counted there",
    }


def test_a_file_counts_once_whatever_its_names(tmp_path: Path) -> None:
    """Of hard links the first in order counts, and a real file before a link to it."""
    plant(tmp_path, "cat/2.jpg", "dog/1.jpg")
    os.link(tmp_path / "cat/2.jpg", tmp_path / "dog/2.jpg")
    (tmp_path / "cat/1.jpg").symlink_to("../dog/1.jpg")
    listing = scan(tmp_path)
    assert samples(tmp_path, listing) == ["cat/2.jpg", "dog/1.jpg"]
    assert reasons(tmp_path, listing) == {
        "cat/1.jpg": f"the same file as {tmp_path / 'dog/1.jpg'}, which is counted",
        "dog/2.jpg": f"the same file as {tmp_path / 'cat/2.jpg'}, which is counted",
    }


def test_a_link_counts_where_its_target_does_not(tmp_path: Path) -> None:
    """Links into a hidden folder, as some data stores make them, are samples."""
    plant(tmp_path, ".store/af01", "cat/")
    (tmp_path / "cat/1.jpg").symlink_to("../.store/af01")
    listing = scan(tmp_path)
    assert samples(tmp_path, listing) == ["cat/1.jpg"]
    assert reasons(tmp_path, listing) == {".store/af01": "in a hidden folder, .store"}


def test_a_link_to_nothing_stays_a_sample(tmp_path: Path) -> None:
    """An image that is not there is not dropped: reading it will say what is wrong."""
    plant(tmp_path, "cat/1.jpg")
    (tmp_path / "cat/2.jpg").symlink_to("gone.jpg")
    (tmp_path / "cat/3.jpg").symlink_to("3.jpg")
    assert samples(tmp_path, scan(tmp_path)) == ["cat/1.jpg", "cat/2.jpg", "cat/3.jpg"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_sample(tmp_path: Path) -> None:
    """What has no contents to read is passed over, whatever its name."""
    plant(tmp_path, "cat/1.jpg")
    os.mkfifo(tmp_path / "cat/2.jpg")
    listing = scan(tmp_path)
    assert samples(tmp_path, listing) == ["cat/1.jpg"]
    assert reasons(tmp_path, listing) == {"cat/2.jpg": "a pipe, a socket or a device"}


def test_every_file_of_a_hostile_tree_is_accounted_for(tmp_path: Path) -> None:
    """Files seen are samples and reasons, each path once, with nothing left over."""
    plant(
        tmp_path,
        *("cat/1.jpg", "cat/2.png", "cat/a/b/c/3.jpg", "cat/.hidden/x/1.jpg", "cat/Thumbs.db"),
        *("dog/1.jpg", "dog/notes.txt", "dog/__MACOSX/._1.jpg", "dog/archive.zip", "dog/noise"),
        *(".git/objects/aa/bb", ".git/HEAD", "readme.md", "stray.jpg", "dog/empty/"),
    )
    (tmp_path / "cat/loop").symlink_to(tmp_path)
    (tmp_path / "kitten").symlink_to("cat")
    (tmp_path / "dog/2.jpg").symlink_to("1.jpg")
    (tmp_path / "dog/gone.jpg").symlink_to("nowhere")
    (tmp_path / ".git/link").symlink_to("objects")
    listing = scan(tmp_path)
    seen = [path for path, _ in listing.samples] + [p.path for p in listing.passed_over]
    # what lies there, found another way: all that is no real folder
    there = [str(p) for p in tmp_path.rglob("*") if p.is_symlink() or not p.is_dir()]
    assert sorted(seen) == sorted(there)
    assert listing.n_files == len(there) == 19


def test_very_deep_trees_are_listed(tmp_path: Path) -> None:
    """Trees deeper than Python's own stack are listed to their end, hidden ones too."""
    start, names = Path.cwd(), ["d"] * 1100
    plant(tmp_path, "cat/1.jpg", "cat/.d/")
    for top in ("cat", "cat/.d"):
        os.chdir(tmp_path / top)
        for name in names:
            Path(name).mkdir()
            os.chdir(name)
        Path("2.jpg").write_bytes(b"")
    listing = scan(tmp_path)
    for top in ("cat", "cat/.d"):
        os.chdir(tmp_path / top / Path(*names))
        Path("2.jpg").unlink()
        for name in names:  # shutil.rmtree, which pytest uses, would not get to the bottom
            os.chdir("..")
            Path(name).rmdir()
    os.chdir(start)
    assert [path.count("/d") for path, _ in listing.samples] == [0, 1100]
    assert [passed.path.count("/d") for passed in listing.passed_over] == [1100]


def test_a_validation_set_takes_the_training_sets_numbers(tmp_path: Path) -> None:
    """`classes` gives the numbering, and a class that is missing here keeps its number."""
    plant(tmp_path, "owl/1.jpg", "cat/1.jpg")
    train = SimpleNamespace(classes=["cat", "dog", "owl"])
    for classes in (train, train.classes):
        listing = scan(tmp_path, classes=classes)
        assert listing.class_to_idx == {"cat": 0, "dog": 1, "owl": 2}
        assert [label for _, label in listing.samples] == [0, 2]
    assert listing.notices == (folder.Notice("empty", "Classes without an image: dog."),)


def test_classes_may_have_any_order(tmp_path: Path) -> None:
    """The order of `classes` gives the numbers; samples stay in the order of the folders."""
    plant(tmp_path, "2/1.jpg", "10/1.jpg")
    listing = scan(tmp_path, classes=["2", "10"])
    assert samples(tmp_path, listing) == ["10/1.jpg", "2/1.jpg"]
    assert [label for _, label in listing.samples] == [1, 0]
    assert listing.notices == ()


def test_unknown_classes_are_an_error_or_left_out_by_name(tmp_path: Path) -> None:
    """A class folder that `classes` does not name raises, or is passed over file by file."""
    plant(tmp_path, "cat/1.jpg", "yak/1.jpg", "yak/notes.txt", "zebra/1.jpg")
    assert message(tmp_path, classes=["cat", "dog"]) == (
        f"{tmp_path} has class folders that are not in classes=: yak, zebra. classes= names cat, "
        "dog. Rename these folders or add their names to classes=, or leave them out with "
        "on_unknown='skip'."
    )
    listing = scan(tmp_path, classes=["cat", "dog"], on_unknown="skip")
    assert samples(tmp_path, listing) == ["cat/1.jpg"]
    assert reasons(tmp_path, listing) == {
        "yak/1.jpg": "its class yak is not in classes=",
        "yak/notes.txt": "its suffix .txt is not among the extensions",
        "zebra/1.jpg": "its class zebra is not in classes=",
    }
    assert message(tmp_path, classes=["dog"], on_unknown="skip") == (
        f"{tmp_path} holds no image of the classes dog: its class folders are cat, yak, zebra. "
        "Correct the names in classes=, or pass allow_empty=True."
    )


def test_a_class_without_an_image_is_an_error_unless_allowed(tmp_path: Path) -> None:
    """An empty class folder is named with what it holds, or keeps its number when asked."""
    plant(tmp_path, "cat/1.jpg", "dog/", "owl/1.gif", "owl/2.gif", "owl/notes.txt")
    assert message(tmp_path) == (
        f"{tmp_path} has class folders without an image: dog (no files), owl (3 files: .gif 2, "
        f".txt 1). Images are files with the suffixes {SUFFIXES}, each counted once. Remove these "
        "folders, add a suffix with extensions=, or keep them as classes with allow_empty=True."
    )
    listing = scan(tmp_path, allow_empty=True)
    expected = ImageFolder(tmp_path, allow_empty=True)
    assert list(listing.classes) == expected.classes
    assert list(listing.samples) == expected.samples
    assert listing.notices == (folder.Notice("empty", "Classes without an image: dog, owl."),)


def test_a_missing_folder_is_named_with_what_is_there(tmp_path: Path) -> None:
    """The message names the nearest folder that exists, its folders, and a likely one."""
    plant(tmp_path / "photos", "train/cat/1.jpg", "val/cat/1.jpg")
    photos = tmp_path / "photos"
    assert message(photos / "trian") == (
        f"{photos / 'trian'} does not exist. {photos} does. Did you mean {photos / 'train'}?"
    )
    assert message(photos / "val/cat/deep/er") == (
        f"{photos / 'val/cat/deep/er'} does not exist. {photos / 'val/cat'} does, and holds no "
        "folders."
    )


def test_an_empty_path_is_told_as_such() -> None:
    """A variable that was never set names no folder, and has no name to begin a message with."""
    expected = (
        "the path of the folder is empty. Expected one folder of images for each class, as in "
        f"{Path('photos') / 'cat' / '1.jpg'}."
    )
    for read in (gp.plan, gp.preload, gp.check):
        with pytest.raises(FolderError) as raised:
            read("")
        assert str(raised.value) == expected


def test_unrelated_folders_are_counted_where_they_are_many(tmp_path: Path) -> None:
    """Up to five folders are named beside a missing one; the names of more would tell nothing."""
    plant(tmp_path, *(f"{name}/" for name in ("ant", "bee", "cat", "dog", "elk")))
    missing = f"{tmp_path / 'nope'} does not exist. {tmp_path} does, and holds"
    assert message(tmp_path / "nope") == f"{missing} the folders ant, bee, cat, dog, elk."
    plant(tmp_path, "fox/")
    assert message(tmp_path / "nope") == f"{missing} 6 folders, none with a similar name."


def test_a_relative_folder_is_looked_for_where_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a relative path the message names the folder in which it was looked for."""
    plant(tmp_path, "data/")
    monkeypatch.chdir(tmp_path)
    assert message("photos") == (
        f"photos does not exist. {tmp_path} does, and holds the folder data."
    )


def test_a_file_is_no_root(tmp_path: Path) -> None:
    """A file, or a link to nothing, is told apart from a missing folder."""
    plant(tmp_path, "photos.zip")
    (tmp_path / "link").symlink_to("gone")
    layout = "Expected one folder of images for each class, as in photos/cat/1.jpg."
    assert message(tmp_path / "photos.zip") == f"{tmp_path / 'photos.zip'} is a file. {layout}"
    assert message(tmp_path / "link") == f"{tmp_path / 'link'} is a link to nothing. {layout}"


def test_images_without_class_folders_hint_at_the_parent(tmp_path: Path) -> None:
    """Where images lie directly in the root, its parent may be what was meant."""
    plant(tmp_path, "cat/1.jpg", "cat/2.jpg", "cat/.hidden/1.jpg")
    root = tmp_path / "cat"
    assert message(root) == (
        f"{root} holds no class folders, and 2 images directly. Did you mean its parent, "
        f"{tmp_path}? Expected one folder of images for each class, as in {root}/cat/1.jpg."
    )


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ([], "no files"),
        (["a.zip"], "1 file: .zip 1"),
        (["a.csv", "b.csv", "readme"], "3 files: .csv 2, no suffix 1"),
    ],
)
def test_a_folder_without_classes_is_named_with_its_files(
    tmp_path: Path, names: list[str], what: str
) -> None:
    """A root without class folders and images is named with what it does hold."""
    plant(tmp_path, *names)
    assert message(tmp_path) == (
        f"{tmp_path} holds no class folders, {what}. Expected one folder of images for each "
        f"class, as in {tmp_path}/cat/1.jpg."
    )


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without the right to read it is named, where ImageFolder would drop its files."""
    plant(tmp_path, "cat/secret/1.jpg", "cat/2.jpg")
    scandir = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert message(tmp_path) == (
        f"{tmp_path / 'cat/secret'} cannot be listed: Permission denied. Give this account the "
        "right to read it, or move it out of the folder."
    )


def test_a_hidden_folder_that_cannot_be_listed_counts_as_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hidden or system folder of an administrator's is passed over as a whole."""
    plant(tmp_path, "cat/1.jpg", "lost+found/1", "lost+found/2")
    scandir = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("lost+found"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert reasons(tmp_path, scan(tmp_path)) == {"lost+found": "in a system folder, lost+found"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"extensions": ()}, "extensions is (); expected suffixes such as ('.jpg', '.png')."),
        ({"extensions": [1]}, "extensions is [1]; expected suffixes such as ('.jpg', '.png')."),
        ({"classes": []}, "classes is []; expected a list of class names."),
        ({"classes": [1, 2]}, "classes is [1, 2]; expected a list of class names."),
        ({"classes": ["a", "a"]}, "classes names 'a' twice; expected different names."),
        (
            {"classes": "cat"},
            "classes is 'cat'; expected a list of class names, or a data set with classes.",
        ),
        ({"on_unknown": "drop"}, "on_unknown is 'drop'; expected 'raise' or 'skip'."),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, options: dict[str, object], text: str) -> None:
    """An argument that cannot be used is named with what was expected."""
    with pytest.raises(ArgumentError) as caught:
        scan(tmp_path, **options)  # type: ignore[arg-type]
    assert str(caught.value) == text


def test_numbers_sorted_as_text_are_noticed(tmp_path: Path) -> None:
    """Class names that are numbers are noticed out of order, unless the caller gave the order."""
    plant(tmp_path / "a", "1/1.jpg", "2/1.jpg", "10/1.jpg")
    plant(tmp_path / "b", "01/1.jpg", "02/1.jpg", "10/1.jpg")
    text = (
        "The class names are numbers, but are sorted as text: class 1 is '10', not '2'. "
        "classes=[...] gives them another order."
    )
    assert scan(tmp_path / "a").notices == (folder.Notice("numbers", text),)
    assert scan(tmp_path / "a", classes=["1", "10", "2"]).notices == ()
    assert scan(tmp_path / "b").notices == ()


def test_names_that_differ_only_in_unicode_form_are_noticed(tmp_path: Path) -> None:
    """Two folders that look alike, as copied between macOS and Linux, are noticed."""
    names = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
    plant(tmp_path, *(f"{name}/1.jpg" for name in names))
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("this file system takes both names for one")
    text = (
        r"The class names 'e\u0301' and '\xe9' look alike: they differ only in how Unicode writes "
        "their letters. Are they one class?"
    )
    assert scan(tmp_path).notices == (folder.Notice("unicode", text),)


def test_parts_of_a_data_set_taken_for_classes_are_noticed(tmp_path: Path) -> None:
    """Classes called train and val are likely one folder too high."""
    plant(tmp_path, "train/cat/1.jpg", "test/cat/1.jpg")
    text = (
        "The classes are named test, train, as the parts of a dataset are. Did you mean "
        f"{tmp_path / 'train'}?"
    )
    assert scan(tmp_path).notices == (folder.Notice("splits", text),)


def test_the_marker_of_the_sample_photos_is_no_file_of_the_users(tmp_path: Path) -> None:
    """The file by which sample_photos knows its folder again is not counted; others like it are."""
    plant(tmp_path, "cat/1.jpg", ".gpupreload-photos", ".gpupreload")
    assert reasons(tmp_path, scan(tmp_path)) == {".gpupreload": "a hidden file"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes any bytes as a file name")
def test_names_of_any_bytes_are_listed(tmp_path: Path) -> None:
    """Names that are no Unicode keep their bytes in the samples, and print in reasons."""
    plant(tmp_path, "cat/1.jpg")
    name = os.fsencode(tmp_path) + b"/cat/\xff.jpg"
    Path(os.fsdecode(name)).write_bytes(b"")
    (tmp_path / "cat/0.jpg").symlink_to(os.fsdecode(name))
    listing = scan(tmp_path)
    assert os.fsencode(listing.samples[1][0]) == name
    assert reasons(tmp_path, listing) == {
        "cat/0.jpg": f"the same file as {tmp_path}/cat/\\udcff.jpg, which is counted"
    }
