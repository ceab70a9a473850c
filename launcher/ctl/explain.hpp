// cpprunctl explain: prints the post-mortem that lies in a folder, wherever it was copied from.
#pragma once

#include <filesystem>
#include <iosfwd>

namespace cpprun::launcher {

// `place`: a folder of runs, of a run, of an attempt or of a post-mortem, or one of the files there. Of
// several runs and attempts the latest that failed is printed, and the others are listed. Nothing but these
// files is looked at. Returns 0, or 1 after a sentence to `trouble`.
int explain(const std::filesystem::path& place, std::ostream& out, std::ostream& trouble);

}  // namespace cpprun::launcher
