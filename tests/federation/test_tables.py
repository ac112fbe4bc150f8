"""Tables: a column of labels, one of sites, inputs as numbers; statistics; splits of one's own."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from fedpareto import Data, load_study
from fedpareto.errors import DataError, SettingError, StudyError
from fedpareto.federation.data import load
from fedpareto.federation.split import deal, dealt
from fedpareto.federation.tables import MOST_WORDS, codes, read_table


def csv_of(path: Path, n: int = 60, sites: int = 3) -> Path:
    rng = np.random.default_rng(0)
    lines = ["age,dose,sex,hospital,died"]
    for i in range(n):
        lines.append(f"{rng.integers(20, 90)},{rng.normal(5 * (i % sites), 2):.4f},{'mf'[i % 2]},site {i % sites + 8},{['no', 'yes'][i % 4 == 0]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def patients(folder: Path, **more: object) -> Data:
    path = csv_of(folder / "patients.csv")
    return Data(str(path), **({"label": "died", "site": "hospital", "clients": 3, "split": "site"} | more))


def test_columns_become_inputs_words_one_each_and_labels_classes(tmp_path):
    arrays = read_table(csv_of(tmp_path / "p.csv"), "died", "hospital", 0.2)
    assert list(arrays["names"]) == ["age", "dose", "sex=f", "sex=m"]
    assert arrays["x_train"].shape == (48, 4)
    assert sorted(np.unique(arrays["y_train"])) == [0, 1]
    assert np.bincount(arrays["site_test"]).tolist() == [4, 4, 4]


def test_sites_are_sorted_as_numbers_where_they_are(tmp_path):
    assert codes(["10", "9", "10"]).tolist() == [1, 0, 1]
    assert codes(["site 10", "site 9"]).tolist() == [0, 1]


def test_the_split_is_the_real_one_for_training_and_test_records(tmp_path):
    data = patients(tmp_path)
    loaded = load(data)
    for labels, sites in ((loaded.y_train, loaded.sites_train), (loaded.y_test, loaded.sites_test)):
        made = dealt(labels, data, 7, sites)
        for client in range(3):
            assert (sites[made.of(client)] == client).all()
        assert made.sizes.tolist() == np.bincount(sites).tolist()


def test_a_study_of_a_table_runs_and_a_model_learns_from_its_sites(tmp_path, fedpareto):
    csv_of(tmp_path / "patients.csv", 240)
    (tmp_path / "s.toml").write_text(
        'budget = 2\n[data]\nname = "patients.csv"\nlabel = "died"\nsite = "hospital"\nsplit = "site"\nclients = 3\nstandardise = "site"\n'
        '[model]\nname = "lr"\n[training]\nrounds = 2\nlocal_steps = 2\nlearning_rate = [0.01, 0.1]\n[mechanism]\nname = "randomization"\nsigma = [0.1, 1.0]\n'
        "[objectives.test_error]\n[objectives.epsilon]\nreference = 100\n")
    done = fedpareto("run", tmp_path / "s.toml")
    assert done.status == 0, done.err
    table = load_study(tmp_path / "s.toml").problem.split_table(0)
    assert table.sum(axis=1).tolist() == [64, 64, 64]
    assert fedpareto("run", tmp_path / "s.toml", "--budget", 3).status == 0
    assert "would be lost" in fedpareto("report", tmp_path / "s.toml", "--output", tmp_path / "patients.csv").err


def test_parquet_and_csv_of_one_table_are_the_same_data(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = csv_of(tmp_path / "p.csv")
    pandas.read_csv(path).to_parquet(tmp_path / "p.parquet")
    first, second = (read_table(tmp_path / name, "died", "hospital", 0.2) for name in ("p.csv", "p.parquet"))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("how", [{}, {"row_group_size": 7}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"compression": "zstd"}, {"dictionary_pagesize_limit": 1},
                                 *({"use_dictionary": False, "column_encoding": {"word": way, "died": "PLAIN"}} for way in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"))])
@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_words_are_read_alike_however_a_parquet_file_holds_them(tmp_path, how, kind):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    words = [f"wörd {i % 5}" for i in range(40)]
    column = pyarrow.array(words).dictionary_encode() if kind == "dictionary" else pyarrow.array(words, getattr(pyarrow, kind)())
    if kind == "dictionary" and "column_encoding" in how:
        pytest.skip("pyarrow writes no such file")
    parquet.write_table(pyarrow.table({"word": column, "died": [i % 2 for i in range(40)]}), tmp_path / "t.parquet", **how)
    (tmp_path / "t.csv").write_text("word,died\n" + "".join(f"{word},{i % 2}\n" for i, word in enumerate(words)))
    first, second = (read_table(tmp_path / name, "died", "", 0.2) for name in ("t.csv", "t.parquet"))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[key], second[key]) for key in first)


def test_sites_may_be_standardised_by_their_own_training_records(tmp_path):
    loaded = load(patients(tmp_path, standardise="site"))
    for site in range(3):
        mine = loaded.x_train[loaded.sites_train == site]
        assert np.allclose(mine.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(mine[:, :2].std(axis=0), 1, atol=1e-5)


def test_public_statistics_are_used_as_they_stand(tmp_path):
    raw = load(patients(tmp_path))
    (tmp_path / "public.csv").write_text("column,mean,spread\nage,50,10\ndose,5,2\nsex=f,0,1\nsex=m,0.5,0.5\n")
    scaled = load(patients(tmp_path, standardise=str(tmp_path / "public.csv")))
    assert np.allclose(scaled.x_test, (raw.x_test - [50, 5, 0, 0.5]) / [10, 2, 1, 0.5])


def test_other_statistics_are_other_data_and_share_no_noise(tmp_path):
    one, other = load(patients(tmp_path)), load(patients(tmp_path, standardise="site"))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(("text", "said"), [
    ("a,b\n", "must have records below its first line"),
    ("a\n1\n", "must have at least two columns"),
    ("a,a\n1,2\n", "'a' more than once"),
    ("a,died\n1,0\n2\n", "line 3: must have 2 cells"),
    ("a,died\n,0\n2,1\n", "column 'a' must have no empty cell, found one in record 1"),
    ("a,died\n1,0\n2,\n", "column 'died' must have no empty cell, found one in record 2"),
    ("died\n1\n", "at least two columns"),
    ("a,dead\n1,0\n", "data.label: must be a column of .*found 'died'"),
    ("died,b\n1,x\n\x00", "must"),
    ("a,died\n" + "".join(f"w{i},0\n" for i in range(MOST_WORDS + 1)), "at most 50 words, found 51 words"),
    ("a,died\n1,0\n", "t.csv: some site must have two records"),
    ("a,died\n1,0\ninf,1\n", "column 'a' must hold numbers that are finite and below 1e\\+38, found 'inf' in record 2"),
    ("a,died\n1,0\n2,1e300\n", "column 'died' must hold numbers that are finite and below 1e\\+38, found '1e300' in record 2"),
])
def test_bad_tables_are_refused_with_the_place(tmp_path, text, said):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        read_table(tmp_path / "t.csv", "died", "", 0.2)


@pytest.mark.parametrize("cell", [[1.0], {"b": 1}, b"\xff"])
def test_a_parquet_column_of_more_than_one_value_a_cell_is_refused(tmp_path, cell):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"a": [cell] * 4, "died": [0, 1, 0, 1]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: column 'a' must hold a number, a word or a date in each cell, found"):
        read_table(tmp_path / "t.parquet", "died", "", 0.2)


def test_bad_settings_are_refused(tmp_path):
    with pytest.raises(SettingError, match=r"label: must name the column of p.csv"):
        Data("p.csv")
    with pytest.raises(SettingError, match="site: must be another column than label"):
        Data("p.csv", label="a", site="a")
    with pytest.raises(SettingError, match=r"label and site: must go with a table \(.csv, .parquet or breast-cancer\), found 'digits'"):
        Data("digits", label="a")
    with pytest.raises(SettingError, match=r"standardise: must be site or the path of a .csv"):
        Data("digits", standardise="all")
    with pytest.raises(SettingError, match=r"split: there is no split 'sites'.*site"):
        Data("digits", split="sites")


def test_sites_must_be_told_and_be_the_clients(tmp_path):
    loaded = load(patients(tmp_path))
    with pytest.raises(DataError, match=r"data.split: site needs data that name the site"):
        deal(loaded.y_train, patients(tmp_path), 0)
    with pytest.raises(DataError, match=r"data.clients: must be the number of sites, 3, found 2"):
        deal(loaded.y_train, patients(tmp_path, clients=2), 0, loaded.sites_train)
    with pytest.raises(DataError, match="every client must hold an image"):
        deal(loaded.y_train, patients(tmp_path, clients=4), 0, loaded.sites_train)
    with pytest.raises(DataError, match=r"data.standardise: site needs data that name the site"):
        load(patients(tmp_path, site="", split="iid", standardise="site"))
    with pytest.raises(DataError, match="must go with inputs"):
        load(Data("digits", standardise="site"))


def test_an_npz_file_may_name_sites(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(size=(20, 3)), "y_train": np.arange(20) % 2, "x_test": rng.normal(size=(6, 3)), "y_test": np.arange(6) % 2}
    np.savez(tmp_path / "s.npz", **arrays, site_train=np.arange(20) % 4, site_test=np.arange(6) % 4)
    loaded = load(Data(str(tmp_path / "s.npz"), clients=4, split="site"))
    assert loaded.sites_train.tolist() == (np.arange(20) % 4).tolist()
    np.savez(tmp_path / "t.npz", **arrays, site_train=np.arange(20) % 4, site_test=np.arange(6))
    with pytest.raises(DataError, match="every site must have training records"):
        load(Data(str(tmp_path / "t.npz"), clients=4, split="site"))
    np.savez(tmp_path / "u.npz", **arrays, site_train=np.arange(20) / 2, site_test=np.arange(6))
    with pytest.raises(DataError, match="site_train must hold the site of each of 20 records"):
        load(Data(str(tmp_path / "u.npz"), clients=4, split="site"))


def own_split(monkeypatch, function):
    module = types.ModuleType("made_up_split")
    module.mine = function
    module.__spec__ = None
    monkeypatch.setitem(sys.modules, "made_up_split", module)
    return Data("digits", clients=4, split="made_up_split:mine")


def test_a_split_of_ones_own_deals_by_its_seed(monkeypatch):
    data = own_split(monkeypatch, lambda labels, clients, rng: rng.integers(0, clients, len(labels)))
    labels = load(Data()).y_train
    first, again, other = (deal(labels, data, seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(first.order, again.order)
    assert not np.array_equal(first.order, other.order)


@pytest.mark.parametrize(("function", "said"), [
    (lambda labels, clients, rng: labels[:3], "must return a whole number for each of 1,438 records"),
    (lambda labels, clients, rng: labels, "must return clients from 0 to 3, found 0 to 9"),
    (lambda labels, clients, rng: labels / 2, "must return a whole number"),
    (lambda labels, clients, rng: 1 // 0, "must return the client of each record, found"),
])
def test_a_split_of_ones_own_that_deals_wrongly_is_refused(monkeypatch, function, said):
    with pytest.raises(DataError, match=said):
        deal(load(Data()).y_train, own_split(monkeypatch, function), 0)


def test_a_study_file_may_name_no_other_code_as_its_split(tmp_path):
    (tmp_path / "s.toml").write_text('[data]\nsplit = "subprocess:getoutput"\n[model]\nname = "lr"\n[training]\nlearning_rate = [0.1, 1.0]\nlocal_steps = 1\n'
                                     '[mechanism]\nname = "none"\n[objectives.test_error]\n')
    with pytest.raises(StudyError, match=r"data\.split"):
        load_study(tmp_path / "s.toml")


HOSPITALS = {"label": "diagnosis", "site": "hospital", "split": "site", "clients": 12}


def test_the_embedded_table_has_twelve_unequal_hospitals_and_is_the_data_of_its_file(tmp_path):
    from fedpareto.federation.embedded import breast_cancer

    table = breast_cancer()
    lines = [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
    (tmp_path / "patients.csv").write_text("\n".join(lines) + "\n")
    embedded, file = load(Data("breast-cancer", **HOSPITALS)), load(Data(str(tmp_path / "patients.csv"), **HOSPITALS))
    assert embedded.fingerprint == file.fingerprint
    assert np.array_equal(embedded.x_test, file.x_test)
    trained, tested = np.bincount(embedded.sites_train), np.bincount(embedded.sites_test)
    assert sorted(trained + tested)[:: len(trained) - 1] == [26, 92]
    assert (len(trained), sum(trained + tested)) == (12, 569)
    assert embedded.shape == (30,)
    assert embedded.y_train.mean() == pytest.approx(212 / 569, abs=0.02)  # malignant is 1
    with pytest.raises(SettingError, match="label: must name the column of breast-cancer that is to be predicted, found none"):
        Data("breast-cancer")
    with pytest.raises(DataError, match=r"data.label: must be a column of breast-cancer, found 'diagnosed'.*diagnosis"):
        load(Data("breast-cancer", **HOSPITALS | {"label": "diagnosed"}))


def test_the_public_ranges_of_the_example_are_those_that_were_published():
    """Middle and a quarter of the ranges in the description of the table, which scikit-learn carries."""
    import csv
    import re

    from sklearn.datasets import load_breast_cancer

    kinds = {"mean": "mean {}", "standard error": "{} error", "worst": "worst {}"}
    found = re.findall(r"^(.+?) \((mean|standard error|worst)\): +([\d.]+) +([\d.]+)$", load_breast_cancer().DESCR, re.M)
    ranges = {kinds[kind].format(name): (float(low), float(high)) for name, kind, low, high in found}
    with (Path(__file__).parents[2] / "examples" / "hospitals_public.csv").open() as file:
        rows = {row["column"]: (float(row["mean"]), float(row["spread"])) for row in csv.DictReader(file)}
    assert set(rows) == set(ranges) == set(load_breast_cancer().feature_names)
    for name, (low, high) in ranges.items():
        assert rows[name] == pytest.approx(((low + high) / 2, (high - low) / 4), rel=1e-5)
