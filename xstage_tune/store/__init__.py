"""The store of measurements: SQLAlchemy models, migrations, span chunks, and one facade.

:class:`xstage_tune.store.facade.Store` is the way in. :mod:`xstage_tune.base.chunks` needs no SQL
and also serves recordings, so this package imports nothing by itself.
"""
