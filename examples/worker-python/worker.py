#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole Syncopate worker with nothing but Python's standard library: docs/protocol.md over a socket.

    NATS_URL=nats://localhost:4222 [NATS_USER=... NATS_PASSWORD=...] [INBOX_PREFIX=_INBOX_mail NO_OBJECT_STORE=1] python3 worker.py [topic]

traces.py goes with it where OTEL_EXPORTER_OTLP_ENDPOINT says where spans go.
"""
import base64, collections, contextlib, hashlib, json, math, os, queue, random, re, signal, socket, struct, sys, threading, time, types
from datetime import datetime
from urllib.parse import unquote, urlparse

if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
    import traces  # spans of jobs: the file beside this one, which does without it elsewhere
else:
    traces = types.SimpleNamespace(start=lambda: None, flush=lambda _: None, span=lambda *_: contextlib.nullcontext(lambda _: None))

PREFIX = os.environ.get("SYNCOPATE_PREFIX", "syncopate")
STREAM = PREFIX.upper().replace("-", "_") + "_JOBS"
BUCKET = PREFIX + "-payloads"  # the object store of large outputs
MOST_INLINE, CHUNK = 64 << 10, 128 << 10  # bytes of an output in a result, and of a piece of a larger one
MOST = MOST_INLINE if os.environ.get("NO_OBJECT_STORE") == "1" else 8 << 20  # bytes of an output at all; a confined worker has no object store
REFRESH, MOST_BIND = 60, 5  # seconds after which AckWait is read again, and between two looks for a consumer that is not there
LONGEST_CODE, LONGEST_MESSAGE = 64, 2000  # characters of a failure: its result has to fit, however much a handler says
LONGEST_WAIT = 2**53 - 1  # milliseconds of a Retry; the operator caps it much lower
PING_EVERY, SEND_TIMEOUT = 5, 5  # seconds: a connection is dropped after two pings without an answer, and when it takes nothing for that time


def log(text):  # never a token, an input or an output
    print(text, file=sys.stderr, flush=True)


def read_number(name, default, pattern, want):
    """Ends the process if what the environment has is no such number."""
    text = os.environ.get(name) or default
    if re.fullmatch(pattern, text):
        return int(text)
    log(f"{name}: want a whole number{want}")
    sys.exit(2)


GRACE = read_number("GRACE_SECONDS", "20", "[0-9]{1,6}", " of seconds, 0 to 999999")  # that jobs have after SIGTERM, some 15 less than the pod has
CONCURRENCY = read_number("CONCURRENCY", "4", "[1-9][0-9]{0,2}", ", 1 to 999")  # jobs at the same time


# ------------------------------------------------------------------------------------------------ the work
#
# A handler gets the input, an event, the fences of the locks that protect the job, by lock, and the parent of a span. The event is set
# when nobody wants the result any more, and also at the end of the grace period. Then raise, do not return, unless the work is done: what
# a handler returns is the output of a job that succeeded. If it raises, another worker begins the job anew.

class Failed(Exception):
    """What a handler raises to give its failure a code, or to forbid a retry. Other exceptions are failures, too."""

    def __init__(self, code, message, final=False):
        super().__init__(message)
        error = {"code": str(code)[:LONGEST_CODE], "message": str(message)[:LONGEST_MESSAGE]}
        self.result = {"status": "Failed", "error": error, "final": bool(final)}


class Retry(Exception):
    """What a handler raises to be called again, without a failure, in that time; rounded up, as the protocol has whole numbers only."""

    def __init__(self, millis):
        super().__init__(millis)
        self.result = {"status": "Retry", "retryAfterMillis": math.ceil(min(max(0, millis), LONGEST_WAIT))}  # in this order NaN is 0


def echo(given, stopped, fences, traceparent):
    return {"youSaid": given}


def conformance(given, stopped, fences, traceparent):
    """The topic of the conformance kit, see docs/workers.md."""
    do = given.get("do")
    if do == "sleep" and stopped.wait(given.get("millis", 0) / 1000):
        raise Failed("Stopped", "stopped before it was done")  # and not return what there is
    if do in ("succeed", "sleep"):
        return given.get("value")
    if do == "fences":
        return fences  # of the locks that protect the job, by lock
    if do == "trace":
        return traceparent  # the parent of a span for this job
    if do == "large":
        return "x" * given.get("bytes", 0)
    if do in ("fail", "final"):
        raise Failed(given.get("code", ""), given.get("message", ""), final=do == "final")
    if do == "retry":
        raise Retry(given.get("millis", 0))
    raise Failed("InvalidInput", f"do is {do!r}", final=True)


# ------------------------------------------------------------------------------------------------ NATS, as far as we need it

Message = collections.namedtuple("Message", "subject reply status headers body")


def read_address(url):
    """Host and port, and the login: that in the address, else that of the environment. Ends the process if there is no such address."""
    try:
        at = urlparse(url.strip() if "://" in url else "nats://" + url.strip())
        one = at.netloc.count("@") < 2 and "," not in at.netloc  # server
        if at.scheme in ("nats", "tcp") and at.hostname and one and not (at.path.strip("/") or at.params or at.query or at.fragment):
            user, password = os.environ.get("NATS_USER"), os.environ.get("NATS_PASSWORD", "")
            if at.username:
                user, password = unquote(at.username), at.password and unquote(at.password)
            login = {"user": user, "pass": password} if password is not None else {"auth_token": user}
            return (at.hostname, at.port or 4222), login if user else {}
    except ValueError:  # its text quotes the address, and a password may be in that
        pass
    log("NATS_URL: want one nats://[user:password@ or token@]host[:port], without TLS; in a user or password write what URLs use as %XX")
    sys.exit(2)


class NATS:
    """A connection that is made again for as long as it takes. What is on its way when it breaks raises ConnectionError."""

    def __init__(self, url):
        self.address, self.login = read_address(url)
        self.sock, self.lock = None, threading.Lock()
        self.max_payload = 1 << 20
        self.inbox = f"{os.environ.get('INBOX_PREFIX', '_INBOX')}.{random.getrandbits(96):x}"
        self.last, self.subs, self.asked = 0, {}, {}  # by sid: (subject, function), and the subject of a request
        self.unanswered = 0  # pings
        for run in (self._run, self._ping):
            threading.Thread(target=run, daemon=True).start()

    def subscribe(self, subject, function):
        """function gets every message, and None when the connection was lost; it must not block."""
        with self.lock:
            self.last += 1
            self.subs[self.last] = (subject, function)
            self._send(f"SUB {subject} {self.last}\r\n".encode())
            return self.last

    def publish(self, subject, body=b"", headers={}, reply=""):
        head = ("NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode()
        with self.lock:
            if not self._send(f"HPUB {subject} {reply} {len(head)} {len(head) + len(body)}\r\n".encode() + head + body + b"\r\n"):
                raise ConnectionError("not connected")

    def request(self, subject, body=b"", headers={}, timeout=5):
        """Publishes and gives the answer."""
        answers, reply = queue.Queue(), f"{self.inbox}.{random.getrandbits(64):x}"
        sid = self.subscribe(reply, answers.put)
        with self.lock:
            self.asked[sid] = subject
        try:
            self.publish(subject, body, headers, reply)
            answer = answers.get(timeout=timeout)
        except queue.Empty:
            with self.lock:
                self._drop()  # who does not even say no is taken for dead
            answer = None
        finally:
            with self.lock:
                del self.subs[sid], self.asked[sid]
                self._send(f"UNSUB {sid}\r\n".encode())
        if answer is None or answer.status == "503":  # nobody listens
            raise ConnectionError(f"no answer from {subject}")
        return answer

    def _send(self, data):  # under the lock
        try:
            self.sock.sendall(data)
            return True
        except (AttributeError, OSError):
            self._drop()
            return False

    def _drop(self):  # with or without the lock
        try:
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes the reader, which connects again
        except (AttributeError, OSError):
            pass

    def _ping(self):
        """Drops a connection that went silent: while all slots are at work, nothing else asks for an answer."""
        while True:
            time.sleep(PING_EVERY)
            self.unanswered += 1
            if self.sock and self.unanswered > 2:
                log("NATS: two pings were not answered")
                self._drop()
            elif self.lock.acquire(timeout=PING_EVERY):  # who has it for longer may be sending, to nobody
                self._send(b"PING\r\n")
                self.lock.release()

    def _run(self):
        while True:
            try:
                self._read(self._connect())
            except Exception as err:  # of the connection, or of what came over it: nobody else would read from now on
                log(f"NATS: {type(err).__name__}: {err}; connecting again")
            with self.lock:
                if self.sock:
                    self.sock.close()
                self.sock, lost = None, list(self.subs.values())
            for _, function in lost:
                function(None)
            time.sleep(random.uniform(0.2, 1))

    def _connect(self):
        sock = socket.create_connection(self.address, timeout=5)
        stream = sock.makefile("rb")
        info = json.loads(stream.readline()[len("INFO "):])
        if info.get("tls_required"):  # the login is not said in the clear
            raise ConnectionError("the server wants TLS, which this worker does not have")
        self.max_payload = info["max_payload"]
        hello = {"verbose": False, "headers": True, "no_responders": True, "name": "worker-python"} | self.login
        with self.lock:
            subs = "".join(f"SUB {subject} {sid}\r\n" for sid, (subject, _) in self.subs.items())
            sock.sendall(f"CONNECT {json.dumps(hello)}\r\nPING\r\n{subs}".encode())
            sock.settimeout(None)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT, 0))  # a struct timeval
            self.unanswered, self.sock = 0, sock  # in this order for _ping
        return stream

    def _read(self, stream):
        while (line := stream.readline()).endswith(b"\n"):  # what the end of the connection cut off is not read
            verb, *args = line.decode(errors="replace").split()
            if verb == "PING":
                with self.lock:
                    self._send(b"PONG\r\n")
            elif verb == "PONG":
                self.unanswered = 0
            elif verb == "-ERR":
                self._refused(line.decode(errors="replace"))
            elif verb in ("MSG", "HMSG"):  # subject sid [reply] [bytes of headers] bytes
                size = int(args[-1])
                data = stream.read(size + 2)  # with the end of the line
                if len(data) < size + 2:
                    raise ConnectionError("connection closed in the middle of a message")
                head = int(args[-2]) if verb == "HMSG" else 0
                reply = args[2] if len(args) > (4 if head else 3) else ""
                status, headers = parse_headers(data[:head])
                with self.lock:
                    _, function = self.subs.get(int(args[1]), ("", lambda m: None))
                function(Message(args[0], reply, status, headers, data[head:size]))
        raise ConnectionError("connection closed")

    def _refused(self, line):
        """Ends requests for which a permission is missing: they get no answer, and the connection stays as it is."""
        if "permissions violation" not in line.lower():
            raise ConnectionError(line.strip())
        log(f"NATS: {line.strip()}")
        subject = re.search(r'for Publish to "([^"]*)"', line, re.IGNORECASE)
        with self.lock:
            ends = [self.subs[sid][1] for sid, asked in self.asked.items() if subject and asked == subject[1]]
        for function in ends:
            function(None)


def parse_headers(head):
    first, *lines = head.decode(errors="replace").split("\r\n")  # one that is not UTF-8 spoils its own message only
    headers = {}
    for name, _, value in (line.partition(":") for line in lines if line):
        headers.setdefault(name, []).append(value.strip())  # a header may be there more than once
    return first.removeprefix("NATS/1.0").strip()[:3], headers


# ------------------------------------------------------------------------------------------------ the protocol

ACK, NAK, TERM, IN_PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"


class TooLarge(Exception):
    """The server never takes this message."""


class Refused(ConnectionError):
    """The server did not store a message, and said so."""


class Job:
    """A job message, read and checked; ValueError if it is none."""

    def __init__(self, message, topic):
        def header(name, default=None):
            return message.headers.get(name, [default])[0]
        self.id, self.token, self.reply = header("Nats-Msg-Id", ""), header("Syncopate-Token"), header("Syncopate-Reply", "")
        self.body, self.acks = message.body, {place(message.reply): message.reply}  # several if the stream has several such messages
        # Who can write a header must not make us publish elsewhere: subject, id and reply name the same job.
        tokens = self.id.replace("/", ".")
        if message.subject != f"{PREFIX}.jobs.{topic}.{tokens}" or not re.fullmatch(rf"{PREFIX}\.results\.\d\d\.{re.escape(tokens)}", self.reply):
            raise ValueError("subject, id and reply do not belong together")
        self.deadline = seconds(header("Syncopate-Deadline"))
        int(header("Syncopate-Fence") or 0)  # the operator's own; one that cannot be read is a ValueError
        pairs = (text.rpartition("=") for text in message.headers.get("Syncopate-Lock-Fence", []))
        self.fences = {lock: int(fence) for lock, _, fence in pairs}
        self.traceparent = header("traceparent", "")  # W3C trace context, the parent of a span for this job; empty if there are no traces
        self.stopped, self.word = threading.Event(), None
        self.begun, self.ended, self.begins = False, False, threading.Lock()  # after one of the first two nobody says Started any more
        self.nuid, self.sent, self.last = None, 0, 0  # of an upload to the object store; last is a sequence

    def join(self, ack):
        """Notes a message of its own. A stream never goes back in its sequences: one that was stored before and has no lower one is gone."""
        at = place(ack)
        if at in self.acks:
            if self.acks[at]:  # the server takes no NAK of a delivery by a consumer that was made anew since
                self.acks[at] = ack
            return
        for old in list(self.acks):
            if old[0] >= at[0] and old[1] < at[1]:
                self.acks[old] = None  # what is said of it would count for the message in its place, which may be another job's
        self.acks[at], self.begun = ack, False  # the stream of results may be a new one, too

    def open(self):
        """The messages that this job ends."""
        return [ack for ack in list(self.acks.values()) if ack]

    def stop(self, word):
        """Ends the job without a result, and is settled with the word; ACK, that it is not wanted, stays."""
        if self.word != ACK:
            self.word = word
        self.stopped.set()


def place(ack):
    """Where a message is in its stream, and since when: what all deliveries of it have in common."""
    tokens = ack.split(".")  # $JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.delivery.time.pending
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 2])


def seconds(text):
    """Unix time of an RFC 3339 time with up to nine digits behind the dot; without one, the end of time."""
    if not text:
        return float("inf")
    whole, digits, zone = re.fullmatch(r"([^.Zz+]+?)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", text).groups()
    return datetime.fromisoformat(whole + zone.upper().replace("Z", "+00:00")).timestamp() + float(digits or 0)


class Worker:
    def __init__(self, nats, topic, handle):
        self.nats, self.topic, self.handle = nats, topic, handle
        self.consumer = f"{STREAM}.{topic.replace('.', '_')}"
        self.stopping, self.running = threading.Event(), {}  # jobs by id
        self.binding, self.bound, self.ack_wait = threading.Lock(), False, 30  # bound: the consumer is there, as far as is known
        self.lock, self.pulls, self.late = threading.Lock(), 0, {}  # pulls that are open; acks of what comes while the worker stops
        nats.subscribe(f"{PREFIX}.control.*", self.control)

    def run(self, wait):
        """Works until wait returns, then at most GRACE seconds longer."""
        traces.start()
        slots = [threading.Thread(target=self.slot) for _ in range(CONCURRENCY)]
        for slot in slots:
            slot.start()
        threading.Thread(target=self.refresh, daemon=True).start()
        wait()
        self.stopping.set()
        log(f"{self.topic}: stopping")
        over = time.monotonic() + GRACE
        for slot in slots:
            slot.join(max(0, over - time.monotonic()))
        for job in list(self.running.values()):
            job.stop(NAK)
        for slot in slots:
            slot.join()
        try:
            self.info()  # its answer says that the server has read all that went before
        except ConnectionError as err:
            log(f"last words may be lost, their jobs come again: {err}")
        traces.flush(5)

    def info(self):
        return json.loads(self.nats.request(f"$JS.API.CONSUMER.INFO.{self.consumer}").body)

    def bind(self):
        """Waits for the consumer, which the operator makes when it dispatches the first job of the topic. One slot asks, for all."""
        with self.binding:
            wait = 1
            while not self.bound and not self.stopping.is_set():
                info = self.info()
                if "error" not in info:
                    self.ack_wait, self.bound = info["config"]["ack_wait"] / 1e9, True
                    return
                log(f"{self.topic}: {info['error']['description']}; looking again in a moment")
                self.stopping.wait(min(random.uniform(0.5, 1.5) * wait, MOST_BIND))
                wait = min(2 * wait, MOST_BIND)

    def refresh(self):
        """Reads AckWait again now and then: who lowers it restarts no worker."""
        while not self.stopping.wait(REFRESH):
            try:
                self.ack_wait = self.info()["config"]["ack_wait"] / 1e9
            except (ConnectionError, KeyError):
                pass  # the next pull tells of it

    def slot(self):
        """Does one job after the other: none waits in this process while another worker could do it."""
        while not self.stopping.is_set():
            try:
                self.bind()
                while not self.stopping.is_set():
                    self.pull()
            except Exception as err:  # whatever it is, a slot that ended would be missed until the next start
                self.bound = False
                log(f"{self.topic}: {type(err).__name__}: {err}; looking again in a moment")
                self.stopping.wait(random.uniform(0.5, 2))
        with self.lock:
            late, self.late = ({}, self.late) if self.pulls else (self.late, {})  # an open pull would get it again at once
        try:
            for ack in late.values():
                self.nats.publish(ack, NAK)
        except ConnectionError as err:
            log(f"jobs that came late come again after AckWait: {err}")

    def pull(self):
        with self.lock:
            if self.stopping.is_set():
                return
            self.pulls += 1
        try:
            ask = {"batch": 1, "expires": 2_000_000_000}  # nanoseconds
            message = self.nats.request(f"$JS.API.CONSUMER.MSG.NEXT.{self.consumer}", json.dumps(ask).encode())
        finally:
            with self.lock:
                self.pulls -= 1
        if message.status in ("404", "408"):  # no job in that time
            return
        if message.status:
            raise ConnectionError(f"the server ended the pull with status {message.status}")
        try:
            job = Job(message, self.topic)
        except (ValueError, AttributeError) as err:
            log(f"{message.subject}: terminated: {err}")
            return self.nats.publish(message.reply, TERM)
        if time.time() >= job.deadline:  # said aloud: a wrong clock here drops good jobs
            log(f"{job.id}: dropped, its deadline was {job.deadline} and it is {time.time()}")
            return self.nats.publish(message.reply, ACK)
        if self.stopping.is_set() and job.id not in self.running:
            with self.lock:
                self.late |= job.acks
            return
        if (first := self.running.setdefault(job.id, job)) is not job:  # NATS was away, or has lost data
            log(f"{job.id}: is at work here already")
            return first.join(message.reply)
        try:
            word = self.work(job)
        finally:
            del self.running[job.id]  # before the acks: NATS may have lost the result before another message of the job comes
        for ack in reversed(job.open()):
            self.nats.publish(ack, word)  # if it is lost, the job comes again and does no harm

    def work(self, job):
        """Does a job, publishes its result, and gives the word that settles it."""
        done = threading.Event()
        threading.Thread(target=self.keep, args=(job, done), daemon=True).start()
        try:
            self.begin(job)
            about = {"messaging.system": "nats", "messaging.operation.type": "process", "messaging.destination.name": self.topic,
                     "messaging.message.id": job.id}
            with traces.span(f"process {self.topic}", job.traceparent, about) as end:
                result, large = self.call(job)
                end(result)
            job.ended = True  # nobody begins to say Started any more; one that is on its way may come after the result
            backoff, saves = 0.1, large or result["status"] == "Succeeded"  # a value that comes after the grace period is worth one try
            while not job.stopped.is_set() or saves and job.word == NAK:
                saves = False
                try:
                    if large:
                        result, large = {"status": "Succeeded", "outputRef": self.put(job, large)}, None
                    self.publish(job, result)
                    return ACK  # only now, when the server has the result
                except TooLarge as err:
                    result, large = Failed("TooLarge", str(err), final=True).result, None
                except ConnectionError as err:
                    log(f"{job.id}: {err}; publishing again")
                    job.stopped.wait(backoff)
                    backoff = min(2 * backoff, 5)
            return job.word
        finally:
            done.set()

    def begin(self, job):
        """Says Started, unless the server has it: a job that nobody seems to have begun is ended by its startTimeoutSeconds."""
        if job.begun or job.ended or not job.begins.acquire(blocking=False):
            return
        try:
            job.begun = True  # until another message comes
            self.publish(job, {"status": "Started"}, "/started")
        except Exception as err:
            job.begun = False
            log(f"{job.id}: Started not published: {err}")  # keep tries again
        finally:
            job.begins.release()

    def call(self, job):
        """Gives the result; or none, and the JSON text of an output that is too large for it."""
        try:
            given = json.loads(job.body)
            if not isinstance(given, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as err:  # the second: too deep for this parser, also next time
            return Failed("InvalidInput", str(err), final=True).result, None
        try:
            output = self.handle(given, job.stopped, job.fences, job.traceparent)
            try:
                text = encoded(output, "strict")
            except (TypeError, ValueError, RecursionError) as err:  # NaN, a set, what contains itself, or text that is not UTF-8
                raise Failed("InvalidOutput", text_of(err), final=True) from err
            if len(text) > MOST:
                raise Failed("TooLarge", f"the output has {len(text)} bytes, at most {MOST} can be stored", final=True)
            return (None, text) if len(text) > MOST_INLINE else ({"status": "Succeeded", "output": output}, None)
        except (Failed, Retry) as err:
            return err.result, None
        except BaseException as err:  # SystemExit, too, which parsers of arguments raise: it would end the slot
            return Failed("Error", text_of(err)).result, None

    def publish(self, job, result, suffix=""):
        """Returns when the server has stored the result. The same Msg-Id makes a second one a duplicate."""
        self.store(job.reply, encoded(result), {"Syncopate-Token": job.token, "Nats-Msg-Id": f"{job.id}/{job.token}{suffix}"})

    def store(self, subject, body, headers={}):
        """Returns the sequence of the message when the stream of that subject has it."""
        if len(body) + 1024 > self.nats.max_payload:
            raise TooLarge(f"{len(body)} bytes are more than the server takes")
        ack = json.loads(self.nats.request(subject, body, headers).body)
        if "error" in ack:
            kinds = {10054: TooLarge, 10071: ConnectionError, 10164: ConnectionError}  # the last two: another one was the last
            raise kinds.get(ack["error"].get("err_code"), Refused)(ack["error"]["description"])
        return ack["seq"]

    def put(self, job, output):
        """Puts an output into the object store and gives the reference to it. What is there already is not stored again."""
        sha = hashlib.sha256(output)
        name, digest = f"{job.id}/{sha.hexdigest()}", "SHA-256=" + base64url(sha.digest())
        entry = f"$O.{BUCKET}.M.{base64url(name.encode())}"
        there = self.nats.request(f"$JS.API.DIRECT.GET.OBJ_{BUCKET}.{entry}")
        if there.status or digest.encode() not in there.body:
            size = min(CHUNK, self.nats.max_payload - 1024)
            job.nuid = job.nuid or f"{job.id.partition('/')[0]}.{random.getrandbits(96):x}"
            chunks, expected = f"$O.{BUCKET}.C.{job.nuid}", "Nats-Expected-Last-Subject-Sequence"
            try:
                while job.sent < len(output):
                    job.last = self.store(chunks, output[job.sent:job.sent + size], {expected: job.last})
                    job.sent += size
                self.store(entry, encoded({"name": name, "bucket": BUCKET, "nuid": job.nuid, "size": len(output), "digest": digest,
                                           "chunks": -(-len(output) // size)}), {"Nats-Rollup": "sub", expected: job.last, expected + "-Subject": chunks})
            except Refused:
                raise  # the next try goes on with this message
            except ConnectionError:
                job.nuid, job.sent, job.last = None, 0, 0  # it may be there or not, so the next try begins anew
                raise
        return {"name": name, "digest": "sha256:" + sha.hexdigest(), "size": len(output)}

    def keep(self, job, done):
        """Tells the server that the job is under way, and ends it at its deadline."""
        while not done.wait(max(0, min(self.ack_wait / 3, REFRESH, job.deadline - time.time()))):  # REFRESH: AckWait may be lowered
            if (now := time.time()) >= job.deadline:  # said aloud: a wrong clock here throws good work away
                log(f"{job.id}: stopped, its deadline was {job.deadline} and it is {now}")
                return job.stop(ACK)
            try:
                for ack in job.open():
                    self.nats.publish(ack, IN_PROGRESS)
            except ConnectionError:
                pass  # the next one may come through
            if not job.begun:  # in a thread of its own: it may wait for an answer for longer than AckWait
                threading.Thread(target=self.begin, args=(job,), daemon=True).start()

    def control(self, message):
        try:
            said = json.loads(message.body)
            if said["action"] == "Cancel":
                run = message.subject.rpartition(".")[2]
                for job in list(self.running.values()):
                    if job.id.startswith(run + "/") and (not said.get("jobs") or job.id in said["jobs"]):
                        job.stop(ACK)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # nothing that we know


def text_of(err):
    """What an exception says; its own code says it, and may raise, too."""
    try:
        return str(err) if isinstance(err, Exception) else repr(err)
    except BaseException:
        return f"{type(err).__name__}, which does not say more"


def encoded(value, errors="replace"):
    """What is not UTF-8 in the text of a failure is replaced. Python has it as lone surrogates, as in names of files."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", errors)


def base64url(data):
    return base64.urlsafe_b64encode(data).decode()  # with padding


if __name__ == "__main__":
    topic = sys.argv[1] if len(sys.argv) > 1 else "demo.python"
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # also in all threads; the main thread waits for them
    nats = NATS(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    Worker(nats, topic, conformance if topic == "demo.conformance" else echo).run(lambda: signal.sigwait(signals))
