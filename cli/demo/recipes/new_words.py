"""Words for the recipe new-words: some that dictionaries lacked or lack, and some that every one
has. Chosen by hand; nobody's messages.
"""

from __future__ import annotations

# Of many devices first.
NEW = (
    "selfie", "yeet", "emoji", "vlog", "doge", "simp", "meme", "crypto", "stan", "yolo", "sus",
    "rizz", "fomo", "drip", "noob", "bae", "lol", "finsta", "covid", "zoomer", "podcast", "glamp",
    "brunch", "hygge", "hangry", "ghosted", "binge", "vape", "kimchi", "ramen", "poke", "boba",
    "matcha", "sriracha", "staycation", "doomscroll", "mansplain", "adulting", "cringe", "goat",
)  # fmt: skip

# What the keyboard knows already: whoever has one of these answers "another".
KNOWN = ("the", "and", "you", "that", "have", "with", "this", "from", "they", "what")
