"""Series that only the service writes, put into a store as it does: past the senders' doors."""

from collections.abc import Iterable

from api.data.ingest.columns import Acceptance
from api.data.ingest.commit import insert_group
from api.data.ingest.door import Names
from api.data.ingest.remote_write_v1 import decode_v1
from api.data.ingest.series import RemoteSeries
from api.data.store.store import Store
from collector.contract.catalog import Catalog
from tests.worlds import remote_write as rw

ANY_TIME = Acceptance(0, 1 << 62)


def write_own(store: Store, series: Iterable[rw.TimeSeries]) -> None:
    """Return when they are in the store."""
    known = RemoteSeries(Names(Catalog([]), accepts_alerts=True), is_placed=store.is_sharded)
    request = decode_v1(rw.request_v1(list(series)), known, ANY_TIME)
    assert not request.refused, request.complaint
    insert_group(store, [request.write])
