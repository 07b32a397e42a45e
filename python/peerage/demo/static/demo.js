// "Older posts" loads the next fragment in place; without this script the link still leads there.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a.older");
  if (!link) return;
  event.preventDefault();
  const answer = await fetch(link.href);
  if (!answer.ok) return;
  const holder = document.createElement("template");
  holder.innerHTML = await answer.text();
  link.replaceWith(holder.content);
});
