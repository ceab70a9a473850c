#include "launcher/completion.hpp"

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

std::vector<std::string> spellings(const OptionEntry& option) {
  std::vector<std::string> names{option.name};
  names.insert(names.end(), option.aliases.begin(), option.aliases.end());
  return names;
}

std::string join(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

bool takes_folder(const OptionEntry& option) {
  return option.takes == "DIR";
}
bool takes_file(const OptionEntry& option) {
  return option.takes == "FILE";
}

// The help's first clause: what fits beside a word that is being typed.
std::string meaning(const OptionEntry& option) {
  return trim(option.help.substr(0, option.help.find_first_of(",;:(")));
}

// Inside single quotes. zsh's specifications give brackets and colons a meaning.
std::string for_zsh(const std::string& text) {
  static const std::string kSpecial = "[]:\\";
  std::string escaped;
  for (const char c : text) {
    if (c == '\'') {
      escaped += "'\\''";
      continue;
    }
    if (kSpecial.find(c) != std::string::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string for_fish(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// A pattern of the options that the shell's `case` looks at; underscores were made dashes before.
std::string pattern(const OptionEntry& option) {
  return join(spellings(option), "|");
}

std::string bash_values(const std::vector<OptionEntry>& options) {
  std::string cases;
  for (const OptionEntry& option : options) {
    const std::string offer = takes_folder(option) ? "-A directory"
                              : takes_file(option) ? "-A file"
                                                   : "-W '" + join(option.words(), " ") + "'";
    if (option.is_flag() || (option.words().empty() && !takes_folder(option) && !takes_file(option)))
      continue;
    cases += "    " + pattern(option) + ") COMPREPLY=($(compgen " + offer + " -- \"$2\")) ;;\n";
  }
  return cases;
}

std::string bash_script(const std::vector<OptionEntry>& options) {
  std::vector<std::string> names;
  std::vector<std::string> flags;
  for (const OptionEntry& option : options) {
    for (const std::string& name : spellings(option)) names.push_back(name);
    if (option.is_flag()) flags.push_back(pattern(option));
  }
  return "# bash completion for cpprun, made by: cpprun --print-completion bash\n"
         "_cpprun_dashes() { # the option in $1 with dashes\n"
         "  if [[ $1 == --* ]]; then printf '%s' \"${1//_/-}\"; else printf '%s' \"$1\"; fi\n"
         "}\n"
         "_cpprun_values() { # the values of option $1 that begin with $2\n"
         "  case $(_cpprun_dashes \"$1\") in\n" +
         bash_values(options) +
         "  esac\n"
         "}\n"
         "_cpprun() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} option='' word i\n"
         "  COMPREPLY=()\n"
         "  # Option and value may be one word; bash makes words of both and of the = between them.\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    word=${COMP_WORDS[i]}\n"
         "    if [[ $word == = && -n $option ]]; then continue; fi\n"
         "    if [[ -n $option ]]; then\n"
         "      option=''\n"
         "    elif [[ $word == -- || $word != -* ]]; then\n"
         "      COMPREPLY=($(compgen -A file -- \"$current\"))\n"
         "      return\n"
         "    else\n"
         "      case $(_cpprun_dashes \"$word\") in\n"
         "        " +
         join(flags, "|") +
         "|*=*) ;;\n"
         "        *) option=$word ;;\n"
         "      esac\n"
         "    fi\n"
         "  done\n"
         "  if [[ $current == = ]]; then current=''; fi\n"
         "  if [[ -n $option ]]; then\n"
         "    _cpprun_values \"$option\" \"$current\"\n"
         "  elif [[ $current == -* ]]; then\n"
         "    local names='" +
         join(names, " ") +
         "'\n"
         "    if [[ $current == --*_* ]]; then names=${names//-/_} names=${names//__/--}; fi\n"
         "    COMPREPLY=($(compgen -W \"$names\" -- \"$current\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -A file -A command -- \"$current\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _cpprun cpprun\n";
}

std::string zsh_values(const OptionEntry& option) {
  if (takes_folder(option)) return "_files -/";
  if (takes_file(option)) return "_files";
  const std::string words = join(option.words(), " ");
  if (words.empty()) return " ";  // nothing to offer
  std::string values = "(";
  values += words;
  return values + ")";
}

std::string zsh_script(const std::vector<OptionEntry>& options) {
  std::string text =
      "#compdef cpprun\n"
      "# zsh completion for cpprun, made by: cpprun --print-completion zsh\n"
      "_arguments -S -A '-*' \\\n";
  for (const OptionEntry& option : options) {
    for (const std::string& name : spellings(option)) {
      const bool may_hold_value = !option.is_flag() && name.rfind("--", 0) == 0;
      text += "  '" + name + (may_hold_value ? "=" : "");
      text += '[';
      text += for_zsh(meaning(option));
      text += ']';
      if (!option.is_flag())
        text.append(":").append(for_zsh(option.takes)).append(":").append(zsh_values(option));
      text += "' \\\n";
    }
  }
  return text +
         "  '1:program:_files' \\\n"
         "  '*:arguments:_files'\n";
}

std::string fish_script(const std::vector<OptionEntry>& options) {
  std::vector<std::string> with_value;
  std::string lines;
  for (const OptionEntry& option : options) {
    lines += "complete -c cpprun -n __cpprun_no_program";
    for (const std::string& name : spellings(option)) {
      const bool is_long = name.rfind("--", 0) == 0;
      lines += (is_long ? " -l " : " -s ") + name.substr(is_long ? 2 : 1);
      if (!option.is_flag()) with_value.push_back(name);
    }
    if (takes_folder(option)) {
      lines += " -x -a '(__fish_complete_directories)'";
    } else if (takes_file(option)) {
      lines += " -r -F";
    } else if (!option.is_flag()) {
      lines += " -x -a '" + join(option.words(), " ") + "'";
    }
    lines += " -d '" + for_fish(meaning(option)) + "'\n";
  }
  return "# fish completion for cpprun, made by: cpprun --print-completion fish\n"
         "function __cpprun_no_program\n"
         "  set -l skip no\n"
         "  for word in (commandline -opc)[2..]\n"
         "    if test $skip = yes\n"
         "      set skip no\n"
         "      continue\n"
         "    end\n"
         "    switch (string replace -a _ - -- $word)\n"
         "      case " +
         join(with_value, " ") +
         "\n"
         "        set skip yes\n"
         "      case '-*'\n"
         "      case '*'\n"
         "        return 1\n"
         "    end\n"
         "  end\n"
         "  return 0\n"
         "end\n" +
         lines;
}

}  // namespace

std::optional<Shell> shell_called(const std::string& name) {
  if (name == "bash") return Shell::Bash;
  if (name == "zsh") return Shell::Zsh;
  if (name == "fish") return Shell::Fish;
  return std::nullopt;
}

std::string completion_script(Shell shell, const std::vector<OptionEntry>& options) {
  switch (shell) {
    case Shell::Bash:
      return bash_script(options);
    case Shell::Zsh:
      return zsh_script(options);
    case Shell::Fish:
      break;
  }
  return fish_script(options);
}

}  // namespace cpprun::launcher
