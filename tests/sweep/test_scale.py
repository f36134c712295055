import pytest
from benchmarks.scale import measure

LIMITS = {
    "parse": 2.0,
    "snakemake -n": 30.0,
    "plan": 20.0,
    "status": 5.0,
    "open_results": 5.0,
    "files a cell": 6.0,
}


@pytest.mark.workflow
def test_ten_thousand_cells_in_a_hundred_shards_stay_within_the_limits():
    found = measure(100, filled=True)
    assert {name: value for name, value in found.items() if value > LIMITS.get(name, 30.0)} == {}
