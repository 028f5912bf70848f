//! Whole volumes from a model of patches, and how good the result is.

use crate::data::Volume;
use crate::{Batch, Error, Result, Trainer};

/// Probabilities [classes, depth, height, width] of a whole volume from a
/// trainer whose plan predicts patches.
///
/// Patches overlap by half and more, and weigh less towards their borders,
/// where a model sees least: overlap-tile inference as O. Ronneberger,
/// P. Fischer, T. Brox, "U-Net", 2015, with weights in place of a cropped
/// border.
///
/// # Errors
/// A volume smaller than the patch, a plan without a prediction, and those of
/// the device.
pub fn segment(
    trainer: &mut Trainer,
    volume: &Volume,
    patch: [usize; 3],
    classes: usize,
) -> Result<Vec<f32>> {
    let size = volume.size();
    if (0..3).any(|d| patch[d] == 0 || size[d] < patch[d]) {
        let message = format!("{size:?} is smaller than the patch of {patch:?}");
        return Err(Error::Input { name: "volumes".into(), message });
    }
    let starts = [0, 1, 2].map(|d| starts(size[d], patch[d]));
    let mut corners = Vec::new();
    for z in &starts[0] {
        for y in &starts[1] {
            corners.extend(starts[2].iter().map(|x| [*z, *y, *x]));
        }
    }
    let (voxels, each) = (size.iter().product::<usize>(), patch.iter().product::<usize>());
    let items = trainer.prediction_items()?;
    let mut sums = vec![0.0; classes * voxels];
    let mut weights = vec![0.0; voxels];
    for some in corners.chunks(items) {
        let mut input = Vec::with_capacity(items * each);
        some.iter().for_each(|corner| volume.cut(*corner, patch, &mut input));
        // The plan is for so many; what is left over is not looked at.
        input.resize(items * each, 0.0);
        let batch = Batch::from([("volumes", bytemuck::cast_slice(&input))]);
        let (_, said) = trainer.predict(&batch)?;
        if said.len() != items * classes * each {
            let message = format!("{} probabilities for {classes} classes", said.len());
            return Err(Error::Input { name: "classes".into(), message });
        }
        for (corner, said) in some.iter().zip(said.chunks_exact(classes * each)) {
            volume.patch(*corner, patch, |at, index| {
                let place = [at / (patch[1] * patch[2]), at / patch[2] % patch[1], at % patch[2]];
                let hat = |d: usize| (place[d] + 1).min(patch[d] - place[d]) as f32;
                let weight = hat(0) * hat(1) * hat(2);
                weights[index] += weight;
                for class in 0..classes {
                    sums[class * voxels + index] += weight * said[class * each + at];
                }
            });
        }
    }
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum /= weights[i % voxels];
    }
    Ok(sums)
}

/// Where patches begin along a dimension: half a patch apart, the last at the
/// end.
fn starts(size: usize, patch: usize) -> Vec<usize> {
    let last = size - patch;
    let mut starts: Vec<usize> = (0..last).step_by(patch.div_ceil(2)).collect();
    starts.push(last);
    starts
}

/// The most probable class of each voxel, of probabilities [classes, …].
pub fn most_probable(probabilities: &[f32], classes: usize) -> Vec<i32> {
    let voxels = probabilities.len() / classes.max(1);
    let best = |i: usize| {
        let of = |class: &usize| probabilities[class * voxels + i];
        (1..classes).fold(0, |best, class| if of(&class) > of(&best) { class } else { best }) as i32
    };
    (0..voxels).map(best).collect()
}

/// Dice coefficient of a class, 2·|A ∩ B| / (|A| + |B|); 1 where neither has
/// it.
pub fn dice(found: &[i32], truth: &[i32], class: i32) -> f64 {
    let count = |x: &[i32]| x.iter().filter(|c| **c == class).count();
    let both = found.iter().zip(truth).filter(|(a, b)| **a == class && **b == class).count();
    let all = count(found) + count(truth);
    if all == 0 { 1.0 } else { 2.0 * both as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_cover_a_dimension() {
        assert_eq!(starts(32, 16), [0, 8, 16]);
        assert_eq!(starts(17, 16), [0, 1]);
        assert_eq!(starts(16, 16), [0]);
        assert_eq!(starts(9, 4), [0, 2, 4, 5]);
        assert_eq!(starts(5, 1), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn dice_of_small_sets() {
        assert_eq!(dice(&[1, 1, 0, 2], &[1, 0, 1, 2], 1), 0.5);
        assert_eq!(dice(&[1, 1, 0, 2], &[1, 0, 1, 2], 2), 1.0);
        assert_eq!(dice(&[0, 0], &[0, 0], 1), 1.0);
        assert_eq!(most_probable(&[0.1, 0.6, 0.9, 0.4], 2), [1, 0]);
    }
}
