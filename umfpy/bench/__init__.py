"""Measures umfpy beside the memory pools that it finds on the machine, in the same run.

``umfpy bench`` is the command.  `umfpy.bench.scenarios` says what is measured,
`umfpy.bench.contenders` against whom, `umfpy.bench.interleave` how samples become numbers.
"""
