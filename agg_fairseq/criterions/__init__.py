"""fairseq criterions, a file each. Importing this package registers them; `base.py` says what each contributes."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
