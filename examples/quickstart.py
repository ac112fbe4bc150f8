"""The quickstart from Python."""

from fedpareto import load_study, run, view, write_page

study = load_study("examples/quickstart.toml", budget=40)
with run(study, db="quickstart-from-python.db") as store:
    seen = view(study, store)
print(seen.recommended, seen.why, write_page(seen, "quickstart-from-python.html"))
