"""The X-Stage model: pure equations over NumPy arrays, with no input or output.

Times are in ns, sizes in bytes, rates in bytes/s, and every name says so. Arguments may be scalars
or arrays and broadcast together; scalars in give a NumPy scalar out. Equation numbers are those of
the X-Stage paper (arXiv 2607.23264): ``burst_gap`` holds 1-10, ``moe`` 11-16, ``attention`` 17-21. Beside
them stand ``finite_run``, what runs of few tiles stall, and ``locality``, what weights from memory cost.
"""
