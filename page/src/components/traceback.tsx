/** A traceback that shows the user's code first: frames of installed packages are folded. */
import { useState } from "preact/hooks";
import { t } from "../messages.ts";
import { CopyButton } from "./copy.tsx";

const LIBRARY = /[\\/](site-packages|dist-packages|lib[\\/]python3[^\\/]*|onthedot[\\/](engine|executors|runtime))[\\/]/;

export interface Piece { text: string; isLibrary: boolean }

/** Text between frames belongs to the user's part: the message is always visible. */
export function piecesOf(traceback: string): Piece[] {
  const pieces: Piece[] = [];
  for (const line of traceback.trimEnd().split("\n")) {
    const last = pieces.at(-1);
    const isFrame = /^\s+File "/.test(line);
    const isInside = last?.isLibrary === true && /^\s{4,}/.test(line);
    const isLibrary = isFrame ? LIBRARY.test(line) : isInside;
    if (last && last.isLibrary === isLibrary) last.text += `\n${line}`;
    else pieces.push({ text: line, isLibrary });
  }
  return pieces;
}

export function Traceback({ text }: { text: string }) {
  const [isWhole, showWhole] = useState(false);
  const [isRaw, showRaw] = useState(false);
  const pieces = piecesOf(text);
  const folded = pieces.filter(({ isLibrary }) => isLibrary).length;
  return (
    <div class="traceback">
      <div class="traceback-tools">
        <button class="quiet" aria-pressed={isRaw} onClick={() => showRaw(!isRaw)}>{t.task.raw}</button>
        {folded > 0 && !isRaw && <button class="quiet" aria-pressed={isWhole} onClick={() => showWhole(!isWhole)}>{isWhole ? t.yourFrames : t.allFrames}</button>}
        <CopyButton text={text} />
      </div>
      <pre tabIndex={0}>
        {isRaw ? text : pieces.map((piece, i) => (piece.isLibrary && !isWhole
          ? <span key={i} class="folded">{t.foldedFrames(piece.text.split("\n").filter((line) => /^\s+File "/.test(line)).length)}</span>
          : <span key={i} class={piece.isLibrary ? "library" : ""}>{`${piece.text}\n`}</span>))}
      </pre>
    </div>
  );
}
