"""How soon a page of a thousand documents is there: ``PYTHONPATH=tests/shared python tests/review/first_paint.py``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from browser import chromium
from review_corpus import thousand_lines, write_lines

from constrain.review import write_review

PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    """Open the page three times, and print milliseconds until something is painted, and until a text is shown."""
    with TemporaryDirectory() as name, chromium() as browser:
        folder = Path(name)
        review = write_review(write_lines(folder / "records.jsonl", thousand_lines(folder)), folder / "records.html")
        print(f"{review.path.stat().st_size / 1e6:.1f} MB")
        for _ in range(3):
            page = browser.new_context(offline=True).new_page()
            page.goto(review.path.as_uri())
            page.wait_for_selector(".text")
            print(f"{page.evaluate(PAINT):.0f} ms, {page.evaluate('performance.now()'):.0f} ms")


if __name__ == "__main__":
    main()
