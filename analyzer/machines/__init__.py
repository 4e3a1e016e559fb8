"""Several machines for one batch or one simulation: workers that are met through a Dask scheduler
and spoken to directly, end to end sealed. Imported only where ``[opening] engine = "dask"``, or
where ``shoal plan --engine`` asks.
"""
