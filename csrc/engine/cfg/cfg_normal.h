// Normalisation of context-free grammars: no empty words, no left recursion, few rules.
#pragma once

#include <vector>

#include "engine/base/byte_set.h"
#include "engine/cfg/cfg_body.h"

namespace constrain::cfg {

/// Rule bodies before normalisation, by symbol: paths from node 0 to node 1. Terminals have no nodes.
using Nets = std::vector<Net>;

/// Rule bodies, by symbol. Terminals and other opaque symbols have a body without states.
using Bodies = std::vector<Body>;

/// Symbols that derive the empty word.
std::vector<bool> nullable_symbols(const Nets& nets);

/// Removes empty words: every use of a nullable symbol becomes optional.
Bodies without_empty_words(Nets nets, const std::vector<bool>& nullable);

/// Removes edges that are on no path to a word. `inhabited[s]` marks symbols with words besides those of their bodies.
/// A symbol without words keeps a body without edges.
void remove_unproductive(Bodies& bodies, const std::vector<bool>& inhabited);

/// Returns equivalent rules, reachable from `start`, without direct, indirect or mutual left recursion.
///
/// The rules of a cycle of first calls are read as one left-linear grammar over whatever else they call: a word of A
/// begins with a seed, a word of some rule B of the cycle that does not begin with a call inside the cycle; and then
/// every completed word of B may be continued to a word of C if C begins with a call of B. That is a regular language
/// over calls, and becomes an automaton: the textbook elimination (A: A x | y becomes y x*) for all rules of a cycle at
/// once, without new rules.
Bodies without_left_recursion(const Bodies& bodies, Symbol start);

/// Inlines rules that are small or called once. `kept` symbols are neither inlined nor inlined into.
Bodies inlined(const Bodies& bodies, Symbol start, const std::vector<bool>& kept);

/// FIRST sets by bytes. `first[s]` adds bytes to those of the body. No symbol derives the empty word.
std::vector<ByteSet> first_bytes(const Bodies& bodies, std::vector<ByteSet> first);

/// FOLLOW sets by bytes, in the texts of `roots`, after which nothing comes.
std::vector<ByteSet> following_bytes(const Bodies& bodies, const std::vector<Symbol>& roots,
                                     const std::vector<ByteSet>& first);

/// Longest chain of rules that enter one another before any byte is read. Requires that left recursion was removed.
size_t first_call_depth(const Bodies& bodies, Symbol start);

}  // namespace constrain::cfg
