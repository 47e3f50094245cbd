"""Check that a built wheel holds the package and nothing else: `check_wheel.py FILE.whl`."""

import sys
import zipfile

names = zipfile.ZipFile(sys.argv[1]).namelist()
tops = {name.split("/")[0] for name in names}
strangers = sorted(top for top in tops if top != "minipaged" and not top.endswith(".dist-info"))
if strangers or "minipaged/__init__.py" not in names:
    sys.exit(f"the wheel should hold minipaged alone, but holds {sorted(tops)}")
print(f"{len(names)} files, all of minipaged")
