// Terminals combined with the ignored text around them.
#pragma once

#include <memory>
#include <vector>

#include "engine/automata/automaton.h"

namespace constrain::cfg {

/// Combines terminals with ignored text.
///
/// Between two terminals there may be any sequence of words of the ignored languages, and each word is the longest one
/// at its place: the text after it must not complete a longer one. So the automaton of the ignored language runs on as
/// a *shadow*, which must not accept again until it dies.
///
/// If no terminal can begin with a byte on which a shadow lives, ignored text belongs to the terminal before it, and
/// ends anywhere. That is the usual case, and needs one parse thread instead of one for each terminal that may come
/// next. Ignored text with a shadow that matters, such as a comment up to the end of the line, belongs to the terminal
/// after it, which knows its own bytes.
class Lexemes {
 public:
  /// `next` holds the first bytes of terminals. No language may contain the empty word.
  Lexemes(std::vector<AutomatonPtr> ignored, const ByteSet& next);
  ~Lexemes();

  /// Returns a terminal with ignored text around it. Null if a shadow may outlive the terminal, which is not supported.
  AutomatonPtr of(const AutomatonPtr& terminal) const;

  /// Returns non-empty ignored text before something that begins with one of `first` and is no terminal. Null if the
  /// first byte does not decide whether a shadow that matters is in the way.
  AutomatonPtr before(const ByteSet& first) const;

  /// Returns non-empty ignored text that belongs to what precedes it, or to the start of the text.
  AutomatonPtr after() const;

  /// Returns non-empty ignored text at the end that belongs to no terminal.
  AutomatonPtr after_last() const;

  class Shadows;

 private:
  std::shared_ptr<Shadows> shadows_;
};

}  // namespace constrain::cfg
