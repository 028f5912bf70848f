//! Tests of the batches and of the thread that prepares them.

use std::collections::HashSet;

use super::*;
use crate::data::ImageDataset;

/// Items of 2×2 bytes: all bytes of item `i` and its label are `i`.
fn counted(items: u8) -> Arc<ImageDataset> {
    Arc::new(ImageDataset {
        images: (0..items).flat_map(|item| [item; 4]).collect(),
        labels: (0..items).map(i32::from).collect(),
        item_shape: vec![2, 2],
        classes: 256,
    })
}

fn labels_of(items: &Items) -> Vec<i32> {
    bytemuck::pod_collect_to_vec(items.batch()["labels"])
}

fn labels(batches: &mut Batches) -> Vec<i32> {
    let mut labels = Vec::new();
    while let Some(batch) = batches.next() {
        let these = labels_of(&batch);
        assert_eq!(batch.count, these.len());
        let images = these.iter().flat_map(|&label| [label as u8; 4]);
        assert_eq!(batch.batch()["images"], images.collect::<Vec<u8>>());
        labels.extend(&these);
        batches.recycle(batch);
    }
    labels
}

#[test]
fn training_drops_the_remainder() {
    let mut batches = Batches::training(counted(23), 5, 1, 0).unwrap();
    assert_eq!((batches.len(), batches.batches_per_epoch()), (4, 4));
    let labels = labels(&mut batches);
    let expected = &shuffled_order(23, 1, 0)[..20];
    assert!(labels.iter().map(|&label| label as u32).eq(expected.iter().copied()));
    assert!(batches.next().is_none());
    assert_eq!(batches.len(), 0);
}

#[test]
fn evaluation_keeps_the_remainder_and_the_order() {
    let mut batches = Batches::evaluation(counted(23), 5).unwrap();
    assert_eq!(batches.len(), 5);
    assert!(labels(&mut batches).into_iter().eq(0..23));
    let mut batches = Batches::evaluation(counted(23), 100).unwrap();
    assert_eq!(batches.next().unwrap().count, 23);
    assert!(batches.next().is_none());
}

#[test]
fn five_epochs_use_four_buffers() {
    let mut batches = Batches::training(counted(200), 5, 1, 0).unwrap();
    let mut buffers = HashSet::new();
    let mut orders = HashSet::new();
    for epoch in 0..5 {
        if epoch > 0 {
            batches.start_epoch(epoch).unwrap();
        }
        let mut order: Vec<i32> = Vec::new();
        while let Some(batch) = batches.next() {
            let rows = batch.batch();
            buffers.insert((rows["images"].as_ptr(), rows["labels"].as_ptr()));
            order.extend(labels_of(&batch));
            batches.recycle(batch);
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..200));
        assert!(orders.insert(order), "epoch {epoch} repeats an order");
    }
    assert!(buffers.len() <= BUFFERS, "{} buffers", buffers.len());
}

#[test]
fn start_epoch_leaves_an_epoch_midway() {
    let mut batches = Batches::training(counted(50), 5, 9, 0).unwrap();
    batches.next().unwrap();
    batches.start_epoch(3).unwrap();
    assert_eq!(batches.len(), 10);
    let again = labels(&mut Batches::training(counted(50), 5, 9, 3).unwrap());
    assert_eq!(labels(&mut batches), again);
}

#[test]
fn batches_need_not_come_back() {
    let all: Vec<Items> = Batches::training(counted(100), 10, 1, 1).unwrap().collect();
    let kept: HashSet<i32> = all.iter().flat_map(labels_of).collect();
    assert_eq!((all.len(), kept.len()), (10, 100));
}

#[test]
fn too_many_batches_may_come_back() {
    let mut batches = Batches::training(counted(200), 1, 1, 1).unwrap();
    for _ in 0..100 {
        batches.recycle(Items::default());
    }
    assert_eq!(labels(&mut batches).len(), 200);
}

#[test]
fn dropping_early_ends_the_thread() {
    let dataset = counted(200);
    for taken in [0, 1, 2, 3, 50, 199, 200] {
        let mut batches = Batches::training(dataset.clone(), 1, 1, 0).unwrap();
        assert_eq!(batches.by_ref().take(taken).count(), taken);
        drop(batches);
        assert_eq!(Arc::strong_count(&dataset), 1, "a thread still holds the data");
    }
}

#[test]
fn batches_may_move_to_another_thread() {
    let batches = Batches::evaluation(counted(10), 3).unwrap();
    let items = thread::spawn(move || batches.map(|batch| batch.count).sum::<usize>());
    assert_eq!(items.join().unwrap(), 10);
}

#[test]
fn impossible_batches_are_refused() {
    let error = Batches::training(counted(5), 0, 1, 0).err().unwrap();
    assert!(matches!(error, DataError::ZeroBatch));
    let error = Batches::training(counted(5), 6, 1, 0).err().unwrap();
    assert!(matches!(error, DataError::SmallerThanBatch { items: 5, batch_items: 6 }));
    assert!(error.to_string().contains("at most 5"), "{error}");
    for error in [
        Batches::training(counted(0), 1, 1, 0).err().unwrap(),
        Batches::evaluation(counted(0), 1).err().unwrap(),
    ] {
        assert!(matches!(error, DataError::NoItems), "{error:?}");
    }
    let torn = ImageDataset { labels: vec![0; 9], ..(*counted(5)).clone() };
    let error = Batches::evaluation(Arc::new(torn), 1).err().unwrap();
    assert!(matches!(error, DataError::Inconsistent { .. }), "{error:?}");
}
