//! Styles of text (`CSI … m`): the parameters as they were given, for a user's terminal, and the part that a screen keeps.

/// Appends the sequence with all its parameters and subparameters, or without them if it only ends all styles.
pub(crate) fn write_all(params: &vte::Params, out: &mut Vec<u8>) {
    if params.iter().eq([[0]]) {
        out.extend_from_slice(b"\x1b[m");
        return;
    }
    let groups: Vec<String> = params
        .iter()
        .map(|group| group.iter().map(u16::to_string).collect::<Vec<_>>().join(":"))
        .collect();
    out.extend_from_slice(format!("\x1b[{}m", groups.join(";")).as_bytes());
}

/// Appends the styles that a screen keeps: colors of text and background, and five attributes. Colors of underlines have
/// arguments that would be styles on their own, and are left out with them.
pub(crate) fn write_kept(params: &vte::Params, out: &mut Vec<u8>) {
    let mut kept: Vec<u16> = Vec::new();
    let mut groups = params.iter();
    while let Some(group) = groups.next() {
        match group {
            [38 | 48 | 58] => {
                let mut next = || groups.next().and_then(|it| it.first().copied());
                let color = match next() {
                    Some(5) => next().map(|index| vec![5, index]),
                    Some(2) => next().zip(next()).zip(next()).map(|((r, g), b)| vec![2, r, g, b]),
                    _ => None,
                };
                push_color(group, color, &mut kept);
            }
            [38 | 48 | 58, 5, index] => push_color(group, Some(vec![5, *index]), &mut kept),
            [38 | 48 | 58, 2, r, g, b] | [38 | 48 | 58, 2, _, r, g, b, ..] => {
                push_color(group, Some(vec![2, *r, *g, *b]), &mut kept);
            }
            // A kind of underline.
            [4, 0] => kept.push(24),
            [4 | 21] | [4, _] => kept.push(4),
            [style] => kept.push(*style),
            _ => {}
        }
    }

    if !kept.is_empty() {
        crate::sequence::write(out, "", &kept, "m");
    }
}

fn push_color(group: &[u16], color: Option<Vec<u16>>, kept: &mut Vec<u16>) {
    let Some((kind @ (38 | 48), color)) = group.first().copied().zip(color) else { return };
    if color.iter().all(|part| *part <= 255) {
        kept.push(kind);
        kept.extend(color);
    }
}
