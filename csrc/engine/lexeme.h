// Terminals together with the ignored text around them.
#pragma once

#include <memory>
#include <vector>

#include "engine/automaton.h"

namespace constrain::cfg {

/// Works ignored text into terminals.
///
/// Between two terminals stands any sequence of words of the ignored languages, and each word is the longest one that
/// its language has at that place: the text after it must not complete a longer one. What follows is therefore watched
/// by the automaton of the ignored language, which runs on as a *shadow* and must not accept again until it dies.
///
/// Where no terminal can begin with a byte on which a shadow lives, ignored text is read by the terminal before it, and
/// its end is free; that is the usual case, and keeps one reading of the text instead of one per terminal that may come
/// next. Ignored text with a shadow that matters, such as a comment up to the end of the line, is read by the terminal
/// after it, which knows its own bytes.
class Lexemes {
 public:
  /// `terminals` are all that the grammar uses. No language may have the empty word.
  Lexemes(std::vector<AutomatonPtr> ignored, const std::vector<AutomatonPtr>& terminals);
  ~Lexemes();

  /// A terminal with ignored text around it. Null where a shadow may live until the terminal has ended, which is not
  /// supported.
  AutomatonPtr of(const AutomatonPtr& terminal) const;

  /// Ignored text at the start of a text, up to the first terminal; non-empty.
  AutomatonPtr before_first() const;

  /// Ignored text at the end that no terminal reads; non-empty.
  AutomatonPtr after_last() const;

  class Shadows;

 private:
  std::shared_ptr<Shadows> shadows_;
};

}  // namespace constrain::cfg
