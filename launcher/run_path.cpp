#include "launcher/run_path.hpp"

namespace cpprun::launcher {

// The script finds sys.argv and sys.path as if Python had been given its name. SystemExit is left to the
// interpreter, KeyboardInterrupt too: it is a stop, not an error. Frames above the script's first one are
// ours and of no use to anybody. A lone surrogate would make the record's JSON invalid for most readers.
// Nothing that goes wrong with the record may hide the script's own error.
const std::string_view kRunPathBootstrap = R"py(
import os, runpy, sys

def script_frames(frame):
    while frame and frame.tb_frame.f_code.co_filename in ("<string>", "<frozen runpy>", runpy.__file__):
        frame = frame.tb_next
    return frame

def record(error, frames):
    import json, time, traceback
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    clean = lambda text: text.encode("utf-8", "backslashreplace").decode("utf-8")
    stack = "".join(traceback.format_exception(type(error), error, frames))
    line = "".join(traceback.format_exception_only(type(error), error)).strip()
    name = type(error).__name__
    try:
        line = name + ": " + str(error)
    except Exception:
        pass
    extra = {"py_callstack": clean(stack), "timestamp": str(int(time.time()))}
    temporary = "%s.tmp.%d" % (path, os.getpid())
    with open(temporary, "w") as file:
        json.dump({"message": {"message": clean(line), "extraInfo": extra}}, file)
    os.replace(temporary, path)

def main():
    del sys.argv[0]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        frames = script_frames(error.__traceback__)
        try:
            record(error, frames)
        except Exception as failure:
            print("the error could not be recorded:", repr(failure), file=sys.stderr)
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.exit(1)

main()
)py";

}  // namespace cpprun::launcher
