#include "launcher/help_text.hpp"

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kMeaning = 34;  // column where the meanings begin

// "-r, --redirects 0|1|2|3", the long name last among an option's short names and first among its long ones.
std::string spellings(const OptionEntry& option) {
  std::string shorts;
  std::string longs = option.name;
  for (const std::string& alias : option.aliases) {
    if (alias.rfind("--", 0) == 0) {
      longs += ", " + alias;
    } else {
      shorts += alias + ", ";
    }
  }
  return "  " + shorts + longs + (option.is_flag() ? "" : " " + option.takes);
}

// `text` from column kMeaning on, behind what stands in `line` already.
std::string wrapped(std::string line, const std::string& text) {
  std::string lines;
  const auto next_line = [&] {
    lines += line + "\n";
    line.assign(kMeaning - 1, ' ');
  };
  if (line.size() + 2 > kMeaning) next_line();
  line.resize(kMeaning - 1, ' ');
  for (const std::string& word : split(text, ' ')) {
    if (line.size() + 1 + word.size() > kWidth) next_line();
    line += " " + word;
  }
  return lines + line + "\n";
}

}  // namespace

std::string help_text(const std::vector<OptionEntry>& options) {
  std::string text =
      "Usage: cpprun [options] program [arguments...]\n\n"
      "Runs one worker per GPU or CPU slot, watches them, and restarts them together.\n";
  std::string group;
  for (const OptionEntry& option : options) {
    if (option.group != group) {
      group = option.group;
      text += "\n" + group + ":\n";
    }
    text += wrapped(spellings(option),
                    option.help + (option.fallback.empty() ? "" : " [default: " + option.fallback + "]"));
  }
  text +=
      "\nOptions may be spelled with underscores, and cut short where that is unambiguous. Each takes its\n"
      "default from PET_<NAME>, such as PET_NPROC_PER_NODE, else from the file of --config.\n\n"
      "Exit codes: 0 all workers ended well, 1 a worker failed, 2 wrong usage, 3 rendezvous failed,\n"
      "4 the system refused, 128+N stopped by signal N. See cpprun(1).\n";
  return text;
}

}  // namespace cpprun::launcher
