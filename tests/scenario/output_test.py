"""What workers write reaches the console and the log files: whole, in time, and never mixed within a line."""
import fcntl
import os
import pty
import signal
import struct
import termios
import threading
import unittest

from harness import CPPRUN, ScenarioTest

with open(CPPRUN, "rb") as program:
    SANITIZED = b"__asan_init" in program.read()  # which multiplies memory


def peak_megabytes(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


class Redirects(ScenarioTest):
    def logs(self, *parts):
        (run,) = os.listdir(self.path("logs"))
        return self.path("logs", run, "attempt_0", *parts)

    def test_redirect_by_local_rank(self):
        self.script("w.sh", "echo out $RANK; echo err $RANK >&2")
        job = self.run_to_end("--nproc-per-node=3", "--log-dir=logs", "-r", "0:3,1:1", "./w.sh")
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(job.out, "out 2\n")
        self.assertNotIn("err 0\n", job.err)
        self.assertIn("err 1\n", job.err)
        self.assertEqual(sorted(os.listdir(self.logs("0"))), ["stderr.log", "stdout.log"])
        self.assertEqual(os.listdir(self.logs("1")), ["stdout.log"])
        self.assertEqual(os.listdir(self.logs("2")), [])

    def test_tee_keeps_bytes_in_the_file_and_prefixes_lines_on_the_console(self):
        self.script("w.sh", r"printf '\xff\xfe\nprogress 1%%\rprogress 2%%\rend'; printf 'e\n' >&2")
        job = self.run_to_end("--log-dir=logs", "-t3", "--role", "r", "./w.sh")
        with open(self.logs("0", "stdout.log"), "rb") as f:
            self.assertEqual(f.read(), b"\xff\xfe\nprogress 1%\rprogress 2%\rend")
        self.assertEqual(job.out, "[r0]:\ufffd\ufffd\n[r0]:progress 1%\r[r0]:progress 2%\r[r0]:end")
        self.assertIn("[r0]:e\n", job.err)

    def test_prefix_template_and_rank_filter(self):
        self.script("w.sh", "echo hello")
        job = self.run_to_end("--nproc-per-node=3", "-t3", "--log-dir=logs", "--local-ranks-filter=1",
                              "--log-line-prefix-template=${role_name}/${rank}> ", "./w.sh")
        self.assertEqual(job.out, "default/1> hello\n")
        for rank in "012":
            with open(self.logs(rank, "stdout.log")) as f:
                self.assertEqual(f.read(), "hello\n")
        job = self.run_to_end("--nproc-per-node=2", "--local-ranks-filter=0", "./w.sh")
        self.assertEqual(job.out, "hello\n")

    def test_lines_that_the_filters_want_are_written_twice(self):
        self.script("w.sh", "echo loss $RANK; echo other $RANK; printf 'los'; printf 's, end %s' $RANK; "
                            "echo loss in err $RANK >&2; echo a,b >&2")
        job = self.run_to_end("--nproc-per-node=3", "-t", "0:3,1:3,2:2", "--log-dir=logs", "--local-ranks-filter=0,2",
                              "--duplicate-stdout-filters=loss,nope", "--duplicate_stderr_filters", "a,,b", "./w.sh")
        self.assertEqual(job.code, 0, job.err)
        # Rank 1 is not shown, and stdout of rank 2 is not teed.
        self.assertEqual(self.read(self.logs("filtered_stdout.log")), "[default0]:loss 0\n[default0]:loss, end 0\n")
        self.assertEqual(sorted(self.read(self.logs("filtered_stderr.log")).splitlines()),
                         ["[default0]:a,b", "[default2]:a,b"])
        self.assertEqual(self.read(self.logs("0", "stdout.log")), "loss 0\nother 0\nloss, end 0")

    def test_filtered_lines_of_many_workers_are_whole(self):
        self.script("w.sh", "for i in $(seq 3000); do echo $RANK:$RANK:$RANK:$i; done")
        job = self.run_to_end("--nproc-per-node=3", "-t1", "--log-dir=logs", "--duplicate-stdout-filters=:", "./w.sh",
                              env={"PET_DUPLICATE_STDERR_FILTERS": ""})
        self.assertEqual(job.code, 0, job.err)
        lines = self.read(self.logs("filtered_stdout.log")).splitlines()
        self.assertEqual(sorted(lines), sorted(f"[default{r}]:{r}:{r}:{r}:{i}" for r in range(3) for i in range(1, 3001)))
        self.assertFalse(os.path.exists(self.logs("filtered_stderr.log")))  # an empty list is none

    def test_partial_line_shows_before_it_ends(self):
        self.script("w.sh", "printf 'Password: '; until [ -e $CASE/go ]; do sleep 0.01; done; echo ok")
        job = self.start("-t1", "./w.sh")
        seen = os.read(job.process.stdout.fileno(), 100)
        self.assertEqual(seen, b"[default0]:Password: ")
        self.write("go", "")
        self.assertEqual(job.end(), 0)
        self.assertEqual(job.out, "ok\n")

    def test_lines_of_many_workers_never_mix(self):
        self.script("w.sh", "for i in $(seq 2000); do echo $RANK:$RANK:$RANK:$RANK:$RANK:$i; done")
        job = self.run_to_end("--nproc-per-node=4", "-t1", "./w.sh")
        lines = job.out.splitlines()
        self.assertEqual(len(lines), 8000)
        for rank in range(4):
            mine = [line for line in lines if line.startswith(f"[default{rank}]:")]
            self.assertEqual(mine, [f"[default{rank}]:" + ":".join([str(rank)] * 5) + f":{i}" for i in range(1, 2001)])

    def test_nothing_is_lost_however_much_and_however_slow_the_reader(self):
        self.script("w.sh", "head -c 30000000 /dev/zero | tr '\\0' 'x' | fold -w 99; touch $CASE/done.$RANK")
        job = self.start("--nproc-per-node=2", "-t1", "--log-dir=logs", "./w.sh")
        # The files do not wait for the console: both workers end before a byte of it was read.
        self.wait_for_files("done.0", "done.1")
        peak = peak_megabytes(job.agent())
        if not SANITIZED:
            self.assertLess(peak, 16, "the agent keeps output in memory")
        self.assertEqual(job.end(), 0)
        self.assertEqual(job.out.count("x"), 60000000)
        for rank in "01":
            self.assertEqual(os.path.getsize(self.logs(rank, "stdout.log")), 30000000 + 303031 - 1)

    def test_a_full_disk_loses_no_line_of_the_console(self):
        lines = "".join(f"line {i} of the worker\n" for i in range(1, 20001))
        self.script("w.sh", "for i in $(seq 20000); do echo line $i of the worker; done; printf end")
        job = self.run_to_end("-t1", "--log-dir=logs", "./w.sh", wrap=("prlimit", "--fsize=100000"))
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(job.out, "".join(f"[default0]:{line}\n" for line in lines.splitlines()) + "[default0]:end")
        self.assertIn("cannot write the log file", job.err)
        with open(self.logs("0", "stdout.log")) as f:
            self.assertEqual(f.read(), lines[:100000])

    def test_reader_that_leaves_does_no_harm(self):
        self.script("w.sh", "for i in $(seq 20000); do echo line $i; echo line $i >&2; done; touch $CASE/done")
        job = self.start("-t3", "./w.sh")
        job.process.stdout.close()
        job.process.stderr.close()
        job.process.stdout = job.process.stderr = None
        self.assertEqual(job.end(), 0)
        self.assertTrue(os.path.exists(self.path("done")))

    def test_grandchild_that_holds_the_pipe_does_not_hold_the_job(self):
        self.script("w.sh", "setsid sleep 300 >&2 &\nexit 0")
        job = self.run_to_end("-t3", "./w.sh")
        self.assertEqual(job.code, 0)
        self.assert_nothing_left(job)

    def test_a_worker_in_another_folder_finds_its_error_file(self):
        self.write("worker.py", "import os, json\nos.chdir('/')\n"
                   "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:\n"
                   "    json.dump({'message': {'message': 'KeyError: 5', 'extraInfo': {}}}, f)\nraise SystemExit(3)\n")
        for arguments, environment in ((["--log-dir=logs"], {}), ([], {"TMPDIR": "tmp"})):
            job = self.run_to_end(*arguments, "worker.py", env=environment)
            self.assertEqual(job.code, 1)
            self.assertIn("KeyError: 5", job.err)

    def test_log_dir_is_a_file(self):
        self.write("f", "")
        job = self.run_to_end("--log-dir=f", "--no-python", "true")
        self.assertEqual(job.code, 2)
        self.assertIn("cannot make the log folder " + self.path("f"), job.err)


class Terminal(ScenarioTest):
    def test_stderr_is_a_terminal_where_ours_is_one(self):
        main, side = pty.openpty()
        self.script("w.sh", "[ -t 2 ] && echo yes >&2; exit 3")
        job = self.start("./w.sh", stderr=side)
        os.close(side)
        seen = bytearray()

        def drain():
            try:
                while True:
                    piece = os.read(main, 4096)
                    if not piece:
                        return
                    seen.extend(piece)
            except OSError:
                return
        reader = threading.Thread(target=drain)
        reader.start()
        self.assertEqual(job.end(), 1)
        reader.join()
        os.close(main)
        text = seen.decode()
        self.assertIn("yes", text)
        self.assertIn("    yes", text)  # and quoted by the report

    def test_a_resized_terminal_resizes_those_of_the_workers(self):
        main, side = pty.openpty()

        def resize(rows, columns):
            fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        resize(30, 90)
        self.script("w.sh", "trap 'stty size <&2 > $CASE/new.$RANK; exit 0' WINCH\nstty size <&2 > $CASE/old.$RANK\n"
                            "touch $CASE/up.$RANK\nwhile :; do sleep 300 & wait $!; done")
        job = self.start("--nproc-per-node=2", "./w.sh", stderr=side)
        self.wait_for_files("up.0", "up.1")
        resize(40, 132)
        job.signal(signal.SIGWINCH)  # as the kernel does for the terminal's foreground group
        reader = threading.Thread(target=self.drain, args=(main,))
        os.close(side)
        reader.start()
        self.assertEqual(job.end(), 0)
        reader.join()
        os.close(main)
        for rank in "01":
            self.assertEqual((self.read("old." + rank), self.read("new." + rank)), ("30 90\n", "40 132\n"))

    @staticmethod
    def drain(fd):
        try:
            while os.read(fd, 4096):
                pass
        except OSError:
            pass

    def test_output_that_cannot_be_written_is_kept_in_the_logs(self):
        with open("/dev/full", "w") as full:
            job = self.run_to_end("-n2", "-t3", "--no-python", "bash", "-c", "echo important; echo more", stdout=full)
        self.assertEqual(job.code, 0, job.err)
        self.assertEqual(job.err.count("cannot write to stdout: No space left on device"), 1, job.err)
        logs = job.err.split("the logs are in ")[1].splitlines()[0].split(";")[0]
        for rank in "01":
            with open(os.path.join(logs, "attempt_0", rank, "stdout.log")) as file:
                self.assertEqual(file.read(), "important\nmore\n")

    def test_a_reader_that_has_left_is_no_trouble(self):
        reader, writer = os.pipe()
        os.close(reader)
        job = self.run_to_end("-n2", "-t3", "--no-python", "echo", "important", stdout=writer)
        os.close(writer)
        self.assertEqual(job.code, 0, job.err)
        self.assertNotIn("cannot write", job.err)
        self.assertNotIn("the logs are in", job.err)
        self.assert_tmp_empty()

    def test_interrupt_from_the_terminal(self):
        """Ctrl-C in a terminal reaches cpprun's group; workers have their own session and get it once."""
        self.script("w.sh", "trap 'echo INT >> $CASE/got; exit 0' INT; touch $CASE/up; sleep 300 & wait $!")
        job = self.start("./w.sh")
        self.wait_for_files("up")
        os.killpg(job.pid, signal.SIGINT)
        self.assertEqual(job.end(), 130)
        self.assertEqual(self.read("got"), "INT\n")


if __name__ == "__main__":
    unittest.main()
