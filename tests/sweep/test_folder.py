import json
import os
import threading

import pytest

from mfsweep._errors import InputError
from mfsweep.sweep.folder import check_claim, claim, provenance


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_new_folder_is_claimed_and_its_owner_may_change_the_config(make_config, tmp_path):
    folder, file = tmp_path / "results" / "small", tmp_path / "config.yaml"
    claim(folder, file, make_config())
    claim(folder, file, make_config(solver={"rtol": 1e-8}))
    record = json.loads((folder / "run.json").read_text())
    assert (folder / record["config_file"]).resolve() == file.resolve()


def test_the_same_config_may_move_to_another_file(make_config, tmp_path):
    folder = tmp_path / "small"
    claim(folder, tmp_path / "one.yaml", make_config())
    claim(folder, tmp_path / "two.yaml", make_config())


def test_another_config_is_refused_and_changes_nothing(make_config, tmp_path):
    folder = tmp_path / "small"
    claim(folder, tmp_path / "one.yaml", make_config())
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"run = 'small': .*made by another config, .*one.yaml;"):
        claim(folder, tmp_path / "two.yaml", make_config(solver={"rtol": 1e-8}))
    assert contents(tmp_path) == before


def test_a_folder_that_holds_something_else_is_refused_and_kept(make_config, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="was not made by mfsweep; choose another name for run"):
        claim(folder, tmp_path / "one.yaml", make_config())
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="as a user the mode bits themselves refuse")
def test_a_folder_that_cannot_be_made_is_refused(make_config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written: choose another"):
        check_claim(tmp_path / "file" / "small", tmp_path / "one.yaml", make_config())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(make_config, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written: choose another"):
        check_claim(tmp_path / "small", tmp_path / "one.yaml", make_config())


def test_jobs_that_start_together_all_claim_the_folder(make_config, tmp_path):
    config, file = make_config(), tmp_path / "one.yaml"
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        ready, outcomes = threading.Barrier(4), []

        def job(name, folder=folder, ready=ready, outcomes=outcomes):
            ready.wait()
            try:
                claim(folder, file, config)
                (folder / "shards" / name).mkdir(parents=True)
                (folder / "shards" / name / "zarr.json").write_text("{}")
            except Exception as error:
                outcomes.append(error)

        threads = [threading.Thread(target=job, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == []


def test_provenance_names_what_made_the_numbers(make_config):
    made_by = provenance(make_config())
    assert json.loads(made_by["library_versions"])["numpy"]
    assert made_by["numerics_version"] >= 1
    assert json.loads(made_by["config"])["run"] == "small"
