// Terminals together with the ignored text around them.
#pragma once

#include <memory>
#include <vector>

#include "engine/automata/automaton.h"

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
  /// `next` are the bytes that terminals may begin with. No language may have the empty word.
  Lexemes(std::vector<AutomatonPtr> ignored, const ByteSet& next);
  ~Lexemes();

  /// A terminal with ignored text around it. Null where a shadow may live until the terminal has ended, which is not
  /// supported.
  AutomatonPtr of(const AutomatonPtr& terminal) const;

  /// Ignored text that is read before something that begins with one of the bytes `first` and is no terminal;
  /// non-empty. Null where the first byte does not tell whether a shadow that matters stands in the way.
  AutomatonPtr before(const ByteSet& first) const;

  /// Ignored text that what stands before it reads, or the start of the text; non-empty.
  AutomatonPtr after() const;

  /// Ignored text at the end that no terminal reads; non-empty.
  AutomatonPtr after_last() const;

  class Shadows;

 private:
  std::shared_ptr<Shadows> shadows_;
};

}  // namespace constrain::cfg
