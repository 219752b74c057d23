"""S3 and Secrets Manager as a process of its own, with paths of its own.

The lifecycle rules of a bucket whose name begins with LOCKED cannot be changed, as where a policy
lets an agent read and write objects and nothing else; in one that begins with UNWRITABLE no object.

Run as `python -m tests.stores.s3_server`; its first line is the port. `POST /-/age` with
{"bucket", "key", "days"} sets back when the object was last modified: no lifecycle rule runs here,
and no test can wait for a day. `POST /-/conflict` with {"times"} lets that many writes be refused,
as S3 does while it decides on another one.
"""

import io
import json
import threading
from datetime import timedelta
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from tests.stores.servers import LOCKED, UNWRITABLE

CONFLICT = "<Error><Code>ConditionalRequestConflict</Code><Message>Retry.</Message></Error>"
DENIED = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


def age(bucket: str, key: str, days: float) -> None:
    objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket].keys
    objects[key].last_modified -= timedelta(days=days)


def main() -> None:
    moto: Any = DomainDispatcherApplication(create_backend_app)
    lock, conflicts = threading.Lock(), list[Response]()

    def application(environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] == "/-/age":
            age(**json.loads(Request(environ).get_data()))
            return Response("{}")(environ, start_response)
        if environ["PATH_INFO"] == "/-/conflict":
            times = json.loads(Request(environ).get_data())["times"]
            conflicts[:] = [Response(CONFLICT, 409, content_type="application/xml")] * times
            return Response("{}")(environ, start_response)
        is_put, path = environ["REQUEST_METHOD"] == "PUT", environ["PATH_INFO"]
        if is_put and conflicts:
            Request(environ).get_data()
            return conflicts.pop()(environ, start_response)
        is_rule = path.startswith(f"/{LOCKED}") and "lifecycle" in environ["QUERY_STRING"]
        is_object = path.startswith(f"/{UNWRITABLE}") and path.count("/") > 1
        if is_put and (is_rule or is_object):
            denied = Response(DENIED, 403, content_type="application/xml")
            return denied(environ, start_response)
        # moto compares and then writes: of two saves at once, both could win. S3 lets one.
        body = Request(environ).get_data()
        environ["wsgi.input"] = io.BytesIO(body)
        with lock:
            return moto(environ, start_response)

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
