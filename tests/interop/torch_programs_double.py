"""More programs in the manner of their authors, in double precision; what each returns is compared.

The imports stand in the first lines, so that a test can change these and nothing else.
"""

import math
import random
from collections import OrderedDict, deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical, Independent, MultivariateNormal, Normal, kl_divergence
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

from interop.torch_program_inputs import integers, normal, rng, set_params


def super_resolution():
    """Sub-pixel convolution, a dataset of its own, a loader."""

    class Net(nn.Module):
        def __init__(self, upscale_factor):
            super().__init__()
            self.relu = nn.ReLU()
            self.conv1 = nn.Conv2d(1, 8, (5, 5), (1, 1), (2, 2))
            self.conv2 = nn.Conv2d(8, 4, (3, 3), (1, 1), (1, 1))
            self.conv3 = nn.Conv2d(4, upscale_factor ** 2, (3, 3), (1, 1), (1, 1))
            self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
            self._initialize_weights()

        def forward(self, x):
            x = self.relu(self.conv1(x))
            x = self.relu(self.conv2(x))
            x = self.pixel_shuffle(self.conv3(x))
            return x

        def _initialize_weights(self):
            nn.init.orthogonal_(self.conv1.weight, nn.init.calculate_gain('relu'))
            nn.init.orthogonal_(self.conv2.weight, nn.init.calculate_gain('relu'))
            nn.init.orthogonal_(self.conv3.weight)

    class Images(Dataset):
        def __init__(self, count):
            super().__init__()
            self.images = normal(count, 1, 8, 8)

        def __getitem__(self, index):
            target = self.images[index]
            small = F.avg_pool2d(target.unsqueeze(0), 2).squeeze(0)
            return small, target

        def __len__(self):
            return len(self.images)
    model = set_params(Net(2))
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(dataset=Images(6), num_workers=0, batch_size=4, shuffle=False)
    out = []
    for _epoch in range(2):
        epoch_loss = 0
        for _iteration, batch in enumerate(loader, 1):
            input, target = batch[0], batch[1]
            optimizer.zero_grad()
            loss = criterion(model(input), target)
            epoch_loss += loss.item()
            loss.backward()
            optimizer.step()
        out.append(epoch_loss / len(loader))
    with torch.no_grad():
        mse = criterion(model(input), target)
        out.append(10 * math.log10(1 / mse.item()))
    return out


def time_sequence_prediction():
    """Cells step by step, and L-BFGS with a closure."""

    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm1 = nn.LSTMCell(1, 7)
            self.lstm2 = nn.LSTMCell(7, 7)
            self.linear = nn.Linear(7, 1)

        def forward(self, input, future=0):
            outputs = []
            h_t = torch.zeros(input.size(0), 7, dtype=torch.double)
            c_t = torch.zeros(input.size(0), 7, dtype=torch.double)
            h_t2 = torch.zeros(input.size(0), 7, dtype=torch.double)
            c_t2 = torch.zeros(input.size(0), 7, dtype=torch.double)
            for input_t in input.split(1, dim=1):
                h_t, c_t = self.lstm1(input_t, (h_t, c_t))
                h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
                output = self.linear(h_t2)
                outputs += [output]
            for _i in range(future):
                h_t, c_t = self.lstm1(output, (h_t, c_t))
                h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
                output = self.linear(h_t2)
                outputs += [output]
            outputs = torch.cat(outputs, dim=1)
            return outputs
    data = np.sin(np.arange(6)[None] / 3.0 + np.arange(4)[:, None])
    input = torch.from_numpy(data[1:, :-1])
    target = torch.from_numpy(data[1:, 1:])
    seq = set_params(Sequence())
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=5)
    out = []
    for _i in range(2):
        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            out.append(loss.item())
            loss.backward()
            return loss
        optimizer.step(closure)
        with torch.no_grad():
            pred = seq(input, future=3)
            loss = criterion(pred[:, :-3], target)
            out.append(loss.item())
    return out


def seq2seq_attention():
    """An encoder and a decoder of GRUs, with additive attention and teacher forcing."""
    hidden_size, SOS_token, MAX_LENGTH = 6, 0, 5

    class EncoderRNN(nn.Module):
        def __init__(self, input_size, hidden_size, dropout_p=0.0):
            super().__init__()
            self.embedding = nn.Embedding(input_size, hidden_size)
            self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
            self.dropout = nn.Dropout(dropout_p)

        def forward(self, input):
            embedded = self.dropout(self.embedding(input))
            output, hidden = self.gru(embedded)
            return output, hidden

    class BahdanauAttention(nn.Module):
        def __init__(self, hidden_size):
            super().__init__()
            self.Wa = nn.Linear(hidden_size, hidden_size)
            self.Ua = nn.Linear(hidden_size, hidden_size)
            self.Va = nn.Linear(hidden_size, 1)

        def forward(self, query, keys):
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
            scores = scores.squeeze(2).unsqueeze(1)
            weights = F.softmax(scores, dim=-1)
            context = torch.bmm(weights, keys)
            return context, weights

    class AttnDecoderRNN(nn.Module):
        def __init__(self, hidden_size, output_size):
            super().__init__()
            self.embedding = nn.Embedding(output_size, hidden_size)
            self.attention = BahdanauAttention(hidden_size)
            self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
            self.out = nn.Linear(hidden_size, output_size)

        def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
            batch_size = encoder_outputs.size(0)
            decoder_input = torch.empty(batch_size, 1, dtype=torch.long).fill_(SOS_token)
            decoder_hidden = encoder_hidden
            decoder_outputs, attentions = [], []
            for i in range(MAX_LENGTH):
                decoder_output, decoder_hidden, attn_weights = self.forward_step(decoder_input, decoder_hidden, encoder_outputs)
                decoder_outputs.append(decoder_output)
                attentions.append(attn_weights)
                if target_tensor is not None:
                    decoder_input = target_tensor[:, i].unsqueeze(1)
                else:
                    _, topi = decoder_output.topk(1)
                    decoder_input = topi.squeeze(-1).detach()
            decoder_outputs = torch.cat(decoder_outputs, dim=1)
            decoder_outputs = F.log_softmax(decoder_outputs, dim=-1)
            attentions = torch.cat(attentions, dim=1)
            return decoder_outputs, decoder_hidden, attentions

        def forward_step(self, input, hidden, encoder_outputs):
            embedded = self.embedding(input)
            query = hidden.permute(1, 0, 2)
            context, attn_weights = self.attention(query, encoder_outputs)
            input_gru = torch.cat((embedded, context), dim=2)
            output, hidden = self.gru(input_gru, hidden)
            output = self.out(output)
            return output, hidden, attn_weights
    encoder, decoder = set_params(EncoderRNN(9, hidden_size)), set_params(AttnDecoderRNN(hidden_size, 8), 1)
    encoder_optimizer = optim.Adam(encoder.parameters(), lr=0.01)
    decoder_optimizer = optim.Adam(decoder.parameters(), lr=0.01)
    criterion = nn.NLLLoss()
    source, target = integers(9, 3, 5), integers(8, 3, 5)
    out = []
    for _ in range(3):
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        encoder_outputs, encoder_hidden = encoder(source)
        decoder_outputs, _, _ = decoder(encoder_outputs, encoder_hidden, target)
        loss = criterion(decoder_outputs.view(-1, decoder_outputs.size(-1)), target.view(-1))
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        out.append(loss.item())
    with torch.no_grad():
        encoder_outputs, encoder_hidden = encoder(source)
        decoder_outputs, decoder_hidden, decoder_attn = decoder(encoder_outputs, encoder_hidden)
        _, topi = decoder_outputs.topk(1)
        out += topi.squeeze().flatten().tolist() + [decoder_attn.sum().item()]
    return out


def translation_transformer():
    """nn.Transformer with masks for padding and for what comes later."""
    PAD_IDX = 1

    class PositionalEncoding(nn.Module):
        def __init__(self, emb_size, dropout, maxlen=50):
            super().__init__()
            den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
            pos = torch.arange(0, maxlen).reshape(maxlen, 1)
            pos_embedding = torch.zeros((maxlen, emb_size))
            pos_embedding[:, 0::2] = torch.sin(pos * den)
            pos_embedding[:, 1::2] = torch.cos(pos * den)
            pos_embedding = pos_embedding.unsqueeze(-2)
            self.dropout = nn.Dropout(dropout)
            self.register_buffer('pos_embedding', pos_embedding)

        def forward(self, token_embedding):
            return self.dropout(token_embedding + self.pos_embedding[:token_embedding.size(0), :])

    class TokenEmbedding(nn.Module):
        def __init__(self, vocab_size, emb_size):
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, emb_size)
            self.emb_size = emb_size

        def forward(self, tokens):
            return self.embedding(tokens.long()) * math.sqrt(self.emb_size)

    class Seq2SeqTransformer(nn.Module):
        def __init__(self, num_encoder_layers, num_decoder_layers, emb_size, nhead, src_vocab_size, tgt_vocab_size,
                     dim_feedforward=16, dropout=0.0):
            super().__init__()
            self.transformer = nn.Transformer(d_model=emb_size, nhead=nhead, num_encoder_layers=num_encoder_layers,
                                              num_decoder_layers=num_decoder_layers, dim_feedforward=dim_feedforward,
                                              dropout=dropout)
            self.generator = nn.Linear(emb_size, tgt_vocab_size)
            self.src_tok_emb = TokenEmbedding(src_vocab_size, emb_size)
            self.tgt_tok_emb = TokenEmbedding(tgt_vocab_size, emb_size)
            self.positional_encoding = PositionalEncoding(emb_size, dropout=dropout)

        def forward(self, src, trg, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, memory_key_padding_mask):
            src_emb = self.positional_encoding(self.src_tok_emb(src))
            tgt_emb = self.positional_encoding(self.tgt_tok_emb(trg))
            outs = self.transformer(src_emb, tgt_emb, src_mask, tgt_mask, None, src_padding_mask, tgt_padding_mask,
                                    memory_key_padding_mask)
            return self.generator(outs)

    def generate_square_subsequent_mask(sz):
        mask = (torch.triu(torch.ones((sz, sz))) == 1).transpose(0, 1)
        mask = mask.float().masked_fill(mask == 0, float('-inf')).masked_fill(mask == 1, 0.0)
        return mask

    def create_mask(src, tgt):
        src_seq_len = src.shape[0]
        tgt_seq_len = tgt.shape[0]
        tgt_mask = generate_square_subsequent_mask(tgt_seq_len) < 0
        src_mask = torch.zeros((src_seq_len, src_seq_len)).type(torch.bool)
        src_padding_mask = (src == PAD_IDX).transpose(0, 1)
        tgt_padding_mask = (tgt == PAD_IDX).transpose(0, 1)
        return src_mask, tgt_mask, src_padding_mask, tgt_padding_mask
    model = set_params(Seq2SeqTransformer(2, 1, 8, 2, 13, 11))
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD_IDX)
    optimizer = optim.Adam(model.parameters(), lr=0.001, betas=(0.9, 0.98), eps=1e-9)
    src = pad_sequence([integers(11, 6) + 2, integers(11, 4) + 2, integers(11, 5) + 2], padding_value=PAD_IDX)
    tgt = pad_sequence([integers(9, 5) + 2, integers(9, 7) + 2, integers(9, 3) + 2], padding_value=PAD_IDX)
    out = []
    model.train()
    for _ in range(3):
        tgt_input = tgt[:-1, :]
        src_mask, tgt_mask, src_padding_mask, tgt_padding_mask = create_mask(src, tgt_input)
        logits = model(src, tgt_input, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, src_padding_mask)
        optimizer.zero_grad()
        tgt_out = tgt[1:, :]
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def actor_critic():
    """Two heads, rewards of one episode, distributions over actions."""
    SavedAction = namedtuple('SavedAction', ['log_prob', 'value'])
    eps = np.finfo(np.float32).eps.item()

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine1 = nn.Linear(4, 16)
            self.action_head = nn.Linear(16, 2)
            self.value_head = nn.Linear(16, 1)
            self.saved_actions = []
            self.rewards = []

        def forward(self, x):
            x = F.relu(self.affine1(x))
            action_prob = F.softmax(self.action_head(x), dim=-1)
            state_values = self.value_head(x)
            return action_prob, state_values
    model = set_params(Policy())
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    out = []
    states, actions = rng.standard_normal((6, 4)), rng.integers(0, 2, 6)
    for _i_episode in range(3):
        for state, chosen in zip(states, actions):
            state = torch.from_numpy(state)
            probs, state_value = model(state)
            m = Categorical(probs)
            action = torch.tensor(int(chosen))
            model.saved_actions.append(SavedAction(m.log_prob(action), state_value))
            model.rewards.append(float(state.sum().item() > 0))
        R = 0
        policy_losses, value_losses, returns = [], [], []
        for r in model.rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        returns = torch.tensor(returns, dtype=torch.float64)
        returns = (returns - returns.mean()) / (returns.std(unbiased=True) + eps)
        for (log_prob, value), R in zip(model.saved_actions, returns):
            advantage = R - value.item()
            policy_losses.append(-log_prob * advantage)
            value_losses.append(F.smooth_l1_loss(value, torch.tensor([R.item()], dtype=torch.float64)))
        optimizer.zero_grad()
        loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
        loss.backward()
        optimizer.step()
        del model.rewards[:]
        del model.saved_actions[:]
        out.append(loss.item())
    return out


def dqn():
    """A replay memory, a target network that follows slowly, clipped gradients."""
    Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward'))

    class ReplayMemory:
        def __init__(self, capacity):
            self.memory = deque(maxlen=capacity)

        def push(self, *args):
            self.memory.append(Transition(*args))

        def sample(self, batch_size):
            return random.Random(0).sample(list(self.memory), batch_size)

        def __len__(self):
            return len(self.memory)

    class DQN(nn.Module):
        def __init__(self, n_observations, n_actions):
            super().__init__()
            self.layer1 = nn.Linear(n_observations, 16)
            self.layer2 = nn.Linear(16, 16)
            self.layer3 = nn.Linear(16, n_actions)

        def forward(self, x):
            x = F.relu(self.layer1(x))
            x = F.relu(self.layer2(x))
            return self.layer3(x)
    BATCH_SIZE, GAMMA, TAU = 8, 0.99, 0.005
    policy_net = set_params(DQN(4, 2))
    target_net = DQN(4, 2).double()
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
    memory = ReplayMemory(100)
    for k in range(12):
        state = normal(1, 4)
        next_state = None if k % 5 == 4 else normal(1, 4)
        memory.push(state, torch.tensor([[k % 2]], dtype=torch.long), next_state, torch.tensor([float(k % 3)], dtype=torch.double))
    out = []
    for _ in range(3):
        if len(memory) < BATCH_SIZE:
            continue
        batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
        non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool)
        non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
        state_batch = torch.cat(batch.state)
        action_batch = torch.cat(batch.action)
        reward_batch = torch.cat(batch.reward)
        state_action_values = policy_net(state_batch).gather(1, action_batch)
        next_state_values = torch.zeros(BATCH_SIZE, dtype=torch.double)
        with torch.no_grad():
            next_state_values[non_final_mask] = target_net(non_final_next_states).max(1)[0]
        expected_state_action_values = (next_state_values * GAMMA) + reward_batch
        criterion = nn.SmoothL1Loss()
        loss = criterion(state_action_values, expected_state_action_values.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        target_net_state_dict = target_net.state_dict()
        policy_net_state_dict = policy_net.state_dict()
        for key in policy_net_state_dict:
            target_net_state_dict[key] = policy_net_state_dict[key] * TAU + target_net_state_dict[key] * (1 - TAU)
        target_net.load_state_dict(target_net_state_dict)
        out.append(loss.item())
    return out


def char_rnn_classification():
    """One-hot letters, a network that is called letter by letter, updates by hand."""
    n_letters, n_categories = 10, 4

    class RNN(nn.Module):
        def __init__(self, input_size, hidden_size, output_size):
            super().__init__()
            self.hidden_size = hidden_size
            self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
            self.i2o = nn.Linear(hidden_size, output_size)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, input, hidden):
            combined = torch.cat((input, hidden), 1)
            hidden = torch.tanh(self.i2h(combined))
            return self.softmax(self.i2o(hidden)), hidden

        def initHidden(self):
            return torch.zeros(1, self.hidden_size, dtype=torch.double)

    def lineToTensor(line):
        tensor = torch.zeros(len(line), 1, n_letters, dtype=torch.double)
        for li, letter in enumerate(line):
            tensor[li][0][letter] = 1
        return tensor

    def categoryFromOutput(output):
        _top_n, top_i = output.topk(1)
        return top_i[0].item()
    rnn = set_params(RNN(n_letters, 6, n_categories))
    criterion = nn.NLLLoss()
    learning_rate = 0.05
    out = []
    for k in range(4):
        line = rng.integers(0, n_letters, 5).tolist()
        category_tensor = torch.tensor([k % n_categories], dtype=torch.long)
        line_tensor = lineToTensor(line)
        hidden = rnn.initHidden()
        rnn.zero_grad()
        for i in range(line_tensor.size()[0]):
            output, hidden = rnn(line_tensor[i], hidden)
        loss = criterion(output, category_tensor)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-learning_rate)
        out += [loss.item(), categoryFromOutput(output)]
    return out


def simclr():
    """Contrastive learning of two views."""

    def info_nce_loss(features, n_views=2, temperature=0.07):
        batch = features.shape[0] // n_views
        labels = torch.cat([torch.arange(batch) for i in range(n_views)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(features, dim=1)
        similarity_matrix = torch.matmul(features, features.T)
        mask = torch.eye(labels.shape[0], dtype=torch.bool)
        labels = labels[~mask].view(labels.shape[0], -1)
        similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
        positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
        negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
        logits = torch.cat([positives, negatives], dim=1)
        labels = torch.zeros(logits.shape[0], dtype=torch.long)
        return logits / temperature, labels
    backbone = nn.Sequential(OrderedDict([
        ('conv', nn.Conv2d(3, 4, 3, padding=1)), ('relu', nn.ReLU(inplace=True)), ('pool', nn.AdaptiveAvgPool2d((1, 1))),
        ('flat', nn.Flatten()), ('fc', nn.Linear(4, 8)), ('act', nn.ReLU()), ('head', nn.Linear(8, 5))]))
    set_params(backbone)
    optimizer = optim.Adam(backbone.parameters(), 0.01, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4, eta_min=0, last_epoch=-1)
    images = torch.cat([normal(4, 3, 6, 6), normal(4, 3, 6, 6)], dim=0)
    out = []
    for _ in range(3):
        logits, labels = info_nce_loss(backbone(images))
        loss = nn.CrossEntropyLoss()(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            correct = logits.argmax(dim=1).eq(labels).float().mean()
        out += [loss.item(), correct.item(), scheduler.get_last_lr()[0]]
    return out


def speech_ctc():
    """Convolution, recurrent layers in both directions, CTC."""

    class Speech(nn.Module):
        def __init__(self, n_class, n_feats=6, rnn_dim=5):
            super().__init__()
            self.cnn = nn.Conv1d(n_feats, 8, kernel_size=3, stride=1, padding=1)
            self.layer_norm = nn.LayerNorm(8)
            self.birnn = nn.GRU(8, rnn_dim, num_layers=2, batch_first=True, bidirectional=True)
            self.classifier = nn.Sequential(nn.Linear(rnn_dim * 2, rnn_dim), nn.GELU(), nn.Dropout(0.0), nn.Linear(rnn_dim, n_class))

        def forward(self, x):
            x = F.gelu(self.cnn(x)).transpose(1, 2).contiguous()
            x, _ = self.birnn(self.layer_norm(x))
            return self.classifier(x)
    model = set_params(Speech(7))
    criterion = nn.CTCLoss(blank=6, zero_infinity=True)
    optimizer = optim.AdamW(model.parameters(), 5e-3)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-2, steps_per_epoch=2, epochs=2, anneal_strategy='linear', cycle_momentum=False)
    spectrograms = normal(3, 6, 12)
    labels = pad_sequence([integers(6, 4), integers(6, 2), integers(6, 3)], batch_first=True)
    input_lengths, label_lengths = [12, 9, 10], [4, 2, 3]
    out = []
    for _ in range(3):
        optimizer.zero_grad()
        output = F.log_softmax(model(spectrograms), dim=2).transpose(0, 1)
        loss = criterion(output, labels, input_lengths, label_lengths)
        loss.backward()
        optimizer.step()
        scheduler.step()
        out.append(loss.item())
    decoded = torch.argmax(output.transpose(0, 1), dim=2)
    return out + [int(t) for t in torch.unique_consecutive(decoded[0])]


def text_classification():
    """A bag of embeddings, texts one after another with offsets, a collate function."""

    class TextClassificationModel(nn.Module):
        def __init__(self, vocab_size, embed_dim, num_class):
            super().__init__()
            self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
            self.fc = nn.Linear(embed_dim, num_class)

        def forward(self, text, offsets):
            return self.fc(self.embedding(text, offsets))

    def collate_batch(batch):
        label_list, text_list, offsets = [], [], [0]
        for (_label, _text) in batch:
            label_list.append(_label)
            processed_text = torch.tensor(_text, dtype=torch.int64)
            text_list.append(processed_text)
            offsets.append(processed_text.size(0))
        label_list = torch.tensor(label_list, dtype=torch.int64)
        offsets = torch.tensor(offsets[:-1]).cumsum(dim=0)
        text_list = torch.cat(text_list)
        return label_list, text_list, offsets
    dataset = [(k % 3, rng.integers(0, 20, 3 + k % 4).tolist()) for k in range(10)]
    dataloader = DataLoader(dataset, batch_size=4, shuffle=False, collate_fn=collate_batch)
    model = set_params(TextClassificationModel(20, 6, 3))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=5)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    out, total_acc, total_count = [], 0, 0
    for _epoch in range(2):
        model.train()
        for label, text, offsets in dataloader:
            optimizer.zero_grad()
            predicted_label = model(text, offsets)
            loss = criterion(predicted_label, label)
            loss.backward()
            clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            total_acc += (predicted_label.argmax(1) == label).sum().item()
            total_count += label.size(0)
            out.append(loss.item())
        scheduler.step()
    return out + [total_acc / total_count]


def sentiment_packed():
    """A bidirectional LSTM over packed sequences."""

    class LSTM(nn.Module):
        def __init__(self, vocab_size, embedding_dim, hidden_dim, output_dim, n_layers, bidirectional, pad_index):
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=pad_index)
            self.lstm = nn.LSTM(embedding_dim, hidden_dim, n_layers, bidirectional=bidirectional, batch_first=True)
            self.fc = nn.Linear(hidden_dim * 2 if bidirectional else hidden_dim, output_dim)

        def forward(self, ids, length):
            embedded = self.embedding(ids)
            packed = pack_padded_sequence(embedded, length, batch_first=True, enforce_sorted=False)
            packed_output, (hidden, cell) = self.lstm(packed)
            output, _output_length = pad_packed_sequence(packed_output, batch_first=True)
            if self.lstm.bidirectional:
                hidden = torch.cat([hidden[-1], hidden[-2]], dim=-1)
            else:
                hidden = hidden[-1]
            return self.fc(hidden), output
    model = set_params(LSTM(15, 5, 4, 2, 2, True, 0))
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    texts = [integers(14, n) + 1 for n in (4, 7, 2)]
    lengths = torch.tensor([len(t) for t in texts])
    ids, label = pad_sequence(texts, batch_first=True, padding_value=0), torch.tensor([0, 1, 1])
    out = []
    for _ in range(3):
        prediction, output = model(ids, lengths)
        loss = F.cross_entropy(prediction, label) + 0.01 * output.pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out + list(output.shape)


def wgan_gp():
    """A critic with spectral norm and a penalty on its gradient."""
    G = set_params(nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 2)))
    D = set_params(nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1)), 1)
    optimizer_G = optim.RMSprop(G.parameters(), lr=0.005)
    optimizer_D = optim.Adam(D.parameters(), lr=0.002, betas=(0.5, 0.9))
    real, z, alpha = normal(6, 2), normal(6, 3), torch.sigmoid(normal(6, 1))

    def compute_gradient_penalty(D, real_samples, fake_samples):
        interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
        d_interpolates = D(interpolates)
        fake = torch.ones(real_samples.shape[0], 1, dtype=torch.double)
        gradients = torch.autograd.grad(outputs=d_interpolates, inputs=interpolates, grad_outputs=fake,
                                        create_graph=True, retain_graph=True, only_inputs=True)[0]
        gradients = gradients.view(gradients.size(0), -1)
        return ((gradients.norm(2, dim=1) - 1) ** 2).mean()
    out = []
    for i in range(4):
        optimizer_D.zero_grad()
        fake_imgs = G(z).detach()
        gradient_penalty = compute_gradient_penalty(D, real.data, fake_imgs.data)
        d_loss = -torch.mean(D(real)) + torch.mean(D(fake_imgs)) + 10 * gradient_penalty
        d_loss.backward()
        optimizer_D.step()
        if i % 2 == 0:
            optimizer_G.zero_grad()
            g_loss = -torch.mean(D(G(z)))
            g_loss.backward()
            optimizer_G.step()
        out += [d_loss.item(), g_loss.item(), gradient_penalty.item()]
    return out


def gcn():
    """Graph convolutions with a normalised adjacency matrix."""

    class GraphConv(nn.Module):
        def __init__(self, in_features, out_features, bias=True):
            super().__init__()
            self.weight = nn.Parameter(torch.FloatTensor(in_features, out_features))
            self.bias = nn.Parameter(torch.FloatTensor(out_features)) if bias else self.register_parameter('bias', None)
            self.reset_parameters()

        def reset_parameters(self):
            stdv = 1. / math.sqrt(self.weight.size(1))
            self.weight.data.uniform_(-stdv, stdv)
            if self.bias is not None:
                self.bias.data.uniform_(-stdv, stdv)

        def forward(self, input, adj):
            support = torch.mm(input, self.weight)
            output = torch.spmm(adj, support) if adj.is_sparse else torch.mm(adj, support)
            return output + self.bias if self.bias is not None else output

        def __repr__(self):
            return self.__class__.__name__
    adj = torch.zeros(7, 7, dtype=torch.double)
    edges = integers(7, 2, 12)
    adj[edges[0], edges[1]] = 1.0
    adj = adj + adj.t().mul(adj.t() > adj) - adj.mul(adj.t() > adj) + torch.eye(7)
    d_inv_sqrt = adj.sum(1).pow(-0.5).flatten()
    d_inv_sqrt[torch.isinf(d_inv_sqrt)] = 0.
    adj = torch.diag(d_inv_sqrt) @ adj @ torch.diag(d_inv_sqrt)

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.gc1 = GraphConv(5, 6)
            self.gc2 = GraphConv(6, 3, bias=False)

        def forward(self, x):
            x = F.relu(self.gc1(x, adj))
            x = F.dropout(x, 0.5, training=False)
            return F.log_softmax(self.gc2(x, adj), dim=1)
    model = set_params(GCN())
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    features, labels, idx_train = normal(7, 5), integers(3, 7), torch.LongTensor([0, 2, 3, 5])
    out = []
    for _ in range(3):
        model.train()
        optimizer.zero_grad()
        output = model(features)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        preds = output[idx_train].max(1)[1].type_as(labels)
        acc = preds.eq(labels[idx_train]).double().sum() / len(idx_train)
        loss_train.backward()
        optimizer.step()
        out += [loss_train.item(), acc.item()]
    return out


def unet_segmentation():
    """Down, up, concatenated; a loss of overlap."""

    class DoubleConv(nn.Module):
        def __init__(self, in_channels, out_channels):
            super().__init__()
            self.double_conv = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(out_channels),
                nn.ReLU(inplace=True), nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
                nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True))

        def forward(self, x):
            return self.double_conv(x)

    class Up(nn.Module):
        def __init__(self, in_channels, out_channels, bilinear):
            super().__init__()
            if bilinear:
                self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)
                self.conv = DoubleConv(in_channels + in_channels // 2, out_channels)
            else:
                self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
                self.conv = DoubleConv(in_channels, out_channels)

        def forward(self, x1, x2):
            x1 = self.up(x1)
            diffY = x2.size()[2] - x1.size()[2]
            diffX = x2.size()[3] - x1.size()[3]
            x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
            return self.conv(torch.cat([x2, x1], dim=1))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inc, self.pool = DoubleConv(1, 4), nn.MaxPool2d(2)
            self.down1, self.down2 = DoubleConv(4, 8), DoubleConv(8, 16)
            self.up1, self.up2 = Up(16, 8, bilinear=False), Up(8, 4, bilinear=True)
            self.outc = nn.Conv2d(4, 1, kernel_size=1)

        def forward(self, x):
            x1 = self.inc(x)
            x2 = self.down1(self.pool(x1))
            x3 = self.down2(self.pool(x2))
            return self.outc(self.up2(self.up1(x3, x2), x1))

    def dice_coeff(input, target, epsilon=1e-6):
        sum_dim = (-1, -2)
        inter = 2 * (input * target).sum(dim=sum_dim)
        sets_sum = input.sum(dim=sum_dim) + target.sum(dim=sum_dim)
        sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
        return ((inter + epsilon) / (sets_sum + epsilon)).mean()
    model = set_params(UNet())
    optimizer = optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=0)
    images, masks = normal(2, 1, 11, 9), (normal(2, 1, 11, 9) > 0).double()
    out = []
    for _ in range(3):
        masks_pred = model(images)
        loss = F.binary_cross_entropy_with_logits(masks_pred.squeeze(1), masks.squeeze(1))
        loss += 1 - dice_coeff(torch.sigmoid(masks_pred).squeeze(1), masks.squeeze(1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.eval()
        with torch.no_grad():
            score = dice_coeff((torch.sigmoid(model(images)) > 0.5).double(), masks)
        model.train()
        scheduler.step(score)
        out += [loss.item(), score.item(), float(optimizer.param_groups[0]['lr'])]
    return out


def distillation():
    """A small network learns what a large one says."""

    def loss_fn_kd(outputs, labels, teacher_outputs, alpha=0.9, T=4.0):
        KD_loss = nn.KLDivLoss(reduction='batchmean')(F.log_softmax(outputs / T, dim=1), F.softmax(teacher_outputs / T, dim=1)) \
            * (alpha * T * T) + F.cross_entropy(outputs, labels) * (1. - alpha)
        return KD_loss
    teacher = set_params(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4)))
    student = set_params(nn.Sequential(nn.Linear(6, 5), nn.ReLU6(), nn.Linear(5, 4)), 1)
    teacher.eval()
    for param in teacher.parameters():
        param.requires_grad = False
    x, y = normal(8, 6), integers(4, 8)
    optimizer = optim.SGD(filter(lambda p: p.requires_grad, student.parameters()), lr=0.1, momentum=0.9, nesterov=True)
    losses = []
    for train_batch, labels_batch in DataLoader(TensorDataset(x, y), batch_size=3, drop_last=True):
        output_batch = student(train_batch)
        with torch.no_grad():
            output_teacher_batch = teacher(train_batch)
        loss = loss_fn_kd(output_batch, labels_batch, output_teacher_batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def matrix_factorization():
    """Embeddings of users and items."""

    class MF(nn.Module):
        def __init__(self, n_users, n_items, n_factors=4):
            super().__init__()
            self.user_factors, self.item_factors = nn.Embedding(n_users, n_factors), nn.Embedding(n_items, n_factors)
            self.user_biases, self.item_biases = nn.Embedding(n_users, 1), nn.Embedding(n_items, 1)
            self.global_bias = nn.Parameter(torch.zeros(1))
            nn.init.xavier_normal_(self.user_factors.weight)

        def forward(self, user, item):
            pred = self.user_biases(user) + self.item_biases(item)
            pred += (self.user_factors(user) * self.item_factors(item)).sum(dim=1, keepdim=True)
            return (pred + self.global_bias).squeeze()
    model = set_params(MF(6, 7))
    optimizer = optim.Adagrad(model.parameters(), lr=0.1)
    users, items, ratings = integers(6, 10), integers(7, 10), normal(10)
    out = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.l1_loss(model(users, items), ratings) + 1e-3 * sum(p.norm() for p in model.parameters())
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def real_nvp():
    """A flow: coupling layers with masks, and the density of what they make."""

    class RealNVP(nn.Module):
        def __init__(self, nets, nett, mask, prior):
            super().__init__()
            self.prior = prior
            self.mask = nn.Parameter(mask, requires_grad=False)
            self.t = torch.nn.ModuleList([nett() for _ in range(len(mask))])
            self.s = torch.nn.ModuleList([nets() for _ in range(len(mask))])

        def f(self, x):
            log_det_J, z = x.new_zeros(x.shape[0]), x
            for i in reversed(range(len(self.t))):
                z_ = self.mask[i] * z
                s = self.s[i](z_) * (1 - self.mask[i])
                t = self.t[i](z_) * (1 - self.mask[i])
                z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
                log_det_J -= s.sum(dim=1)
            return z, log_det_J

        def log_prob(self, x):
            z, logp = self.f(x)
            return self.prior.log_prob(z) + logp
    masks = torch.from_numpy(np.array([[0., 1.], [1., 0.]] * 2))
    prior = MultivariateNormal(torch.zeros(2, dtype=torch.double), torch.eye(2, dtype=torch.double))
    flow = RealNVP(lambda: nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 2), nn.Tanh()),
                   lambda: nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 2)), masks, prior)
    held = flow.mask.detach().clone()
    set_params(flow)
    flow.mask.data.copy_(held)
    optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad == True], lr=1e-3)  # noqa: E712
    data = normal(10, 2) * 0.5 + 1
    out = []
    for _t in range(4):
        loss = -flow.log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        out.append(loss.item())
    return out


def ppo():
    """A Gaussian policy, clipped ratios, an entropy bonus."""

    class ActorCritic(nn.Module):
        def __init__(self, obs_dim, act_dim):
            super().__init__()
            self.log_std = torch.nn.Parameter(torch.as_tensor(-0.5 * np.ones(act_dim)))
            self.mu_net = nn.Sequential(nn.Linear(obs_dim, 8), nn.Tanh(), nn.Linear(8, act_dim), nn.Identity())
            self.v_net = nn.Sequential(nn.Linear(obs_dim, 8), nn.Tanh(), nn.Linear(8, 1))

        def distribution(self, obs):
            return Normal(self.mu_net(obs), torch.exp(self.log_std))
    ac = set_params(ActorCritic(3, 2))
    obs, act, adv, ret = normal(9, 3), normal(9, 2), normal(9), normal(9)
    with torch.no_grad():
        logp_old = ac.distribution(obs).log_prob(act).sum(axis=-1) + 0.1 * adv
    pi_optimizer = optim.Adam(ac.mu_net.parameters(), lr=3e-3)
    vf_optimizer = optim.Adam(ac.v_net.parameters(), lr=1e-2)
    out = []
    for _i in range(3):
        pi_optimizer.zero_grad()
        pi = ac.distribution(obs)
        logp = pi.log_prob(act).sum(axis=-1)
        ratio = torch.exp(logp - logp_old)
        clip_adv = torch.clamp(ratio, 1 - 0.2, 1 + 0.2) * adv
        loss_pi = -(torch.min(ratio * adv, clip_adv)).mean() - 0.01 * pi.entropy().mean()
        approx_kl = (logp_old - logp).mean().item()
        clipped = ratio.gt(1 + 0.2) | ratio.lt(1 - 0.2)
        clipfrac = torch.as_tensor(clipped, dtype=torch.float32).mean().item()
        loss_pi.backward()
        pi_optimizer.step()
        vf_optimizer.zero_grad()
        loss_v = ((ac.v_net(obs).squeeze(-1) - ret) ** 2).mean()
        loss_v.backward()
        vf_optimizer.step()
        old, new = Independent(pi, 1), Independent(ac.distribution(obs), 1)
        out += [loss_pi.item(), loss_v.item(), approx_kl, clipfrac, kl_divergence(old, new).mean().item()]
    return out


def mini_gpt():
    """A decoder of one's own: fused projections, a triangular mask, weight decay for matrices only, greedy text."""

    class CausalSelfAttention(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            assert n_embd % n_head == 0
            self.c_attn = nn.Linear(n_embd, 3 * n_embd)
            self.c_proj = nn.Linear(n_embd, n_embd)
            self.n_head, self.n_embd = n_head, n_embd
            self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split_with_sizes([self.n_embd] * 3, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float('-inf'))
            att = F.softmax(att, dim=-1)
            y = att @ v
            y = y.transpose(1, 2).contiguous().view(B, T, C)
            return self.c_proj(y)

    class Block(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
            self.attn = CausalSelfAttention(n_embd, n_head, block_size)
            self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(n_embd, 4 * n_embd), c_proj=nn.Linear(4 * n_embd, n_embd), act=nn.GELU()))
            m = self.mlp
            self.mlpf = lambda x: m.c_proj(m.act(m.c_fc(x)))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlpf(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, vocab_size=11, n_embd=8, n_head=2, n_layer=2, block_size=6):
            super().__init__()
            self.block_size = block_size
            self.transformer = nn.ModuleDict(dict(
                wte=nn.Embedding(vocab_size, n_embd), wpe=nn.Embedding(block_size, n_embd),
                h=nn.ModuleList([Block(n_embd, n_head, block_size) for _ in range(n_layer)]), ln_f=nn.LayerNorm(n_embd)))
            self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

        def configure_optimizers(self):
            decay, no_decay = set(), set()
            for mn, m in self.named_modules():
                for pn, _p in m.named_parameters(recurse=False):
                    fpn = f'{mn}.{pn}' if mn else pn
                    if pn.endswith('weight') and isinstance(m, (torch.nn.Linear,)):
                        decay.add(fpn)
                    else:
                        no_decay.add(fpn)
            param_dict = {pn: p for pn, p in self.named_parameters()}
            assert len(param_dict.keys() - (decay | no_decay)) == 0
            return torch.optim.AdamW([{"params": [param_dict[pn] for pn in sorted(decay)], "weight_decay": 0.1},
                                      {"params": [param_dict[pn] for pn in sorted(no_decay)], "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95))

        def forward(self, idx, targets=None):
            _b, t = idx.size()
            assert t <= self.block_size, f"Cannot forward sequence of length {t}, block size is only {self.block_size}"
            pos = torch.arange(0, t, dtype=torch.long).unsqueeze(0)
            x = self.transformer.wte(idx) + self.transformer.wpe(pos)
            for block in self.transformer.h:
                x = block(x)
            logits = self.lm_head(self.transformer.ln_f(x))
            loss = None
            if targets is not None:
                loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)
            return logits, loss

        @torch.no_grad()
        def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
            for _ in range(max_new_tokens):
                idx_cond = idx if idx.size(1) <= self.block_size else idx[:, -self.block_size:]
                logits, _ = self(idx_cond)
                logits = logits[:, -1, :] / temperature
                if top_k is not None:
                    v, _ = torch.topk(logits, top_k)
                    logits[logits < v[:, [-1]]] = -float('Inf')
                probs = F.softmax(logits, dim=-1)
                _, idx_next = torch.topk(probs, k=1, dim=-1)
                idx = torch.cat((idx, idx_next), dim=1)
            return idx
    model = set_params(GPT())
    optimizer = model.configure_optimizers()
    data = integers(11, 3, 7)
    out = []
    for _ in range(3):
        _logits, loss = model(data[:, :-1], data[:, 1:])
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        out.append(loss.item())
    return out + model.generate(data[:1, :3], 5, top_k=4)[0].tolist()


def maml():
    """Parameters adapted by a gradient step through which a gradient goes."""

    def net(x, w):
        return F.linear(torch.tanh(F.linear(x, w[0], w[1])), w[2], w[3])
    weights = [normal(6, 1).requires_grad_(), torch.zeros(6, dtype=torch.double, requires_grad=True),
               normal(1, 6).requires_grad_(), torch.zeros(1, dtype=torch.double, requires_grad=True)]
    optimizer = optim.Adam(weights, lr=1e-2)
    xs, phases = normal(5, 1), [0.0, 0.5, 1.0]
    out = []
    for _ in range(3):
        meta_loss = 0
        for phase in phases:
            ys = torch.sin(xs + phase)
            temp_weights = [w.clone() for w in weights]
            for _step in range(2):
                loss = F.mse_loss(net(xs, temp_weights), ys)
                grad = torch.autograd.grad(loss, temp_weights, create_graph=True)
                temp_weights = [w - 0.1 * g for w, g in zip(temp_weights, grad)]
            meta_loss = meta_loss + F.mse_loss(net(xs + 0.1, temp_weights), torch.sin(xs + 0.1 + phase))
        optimizer.zero_grad()
        meta_loss.backward()
        optimizer.step()
        out.append(meta_loss.item() / len(phases))
    return out


def spectral_critic():
    """Hinge losses, a critic with normed weights."""
    critic = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(4, 4, 3, 2, 1), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(16, 1))
    set_params(critic)
    for k in (0, 2, 5):
        parametrizations.weight_norm(critic[k])
    optimizer = optim.RAdam(critic.parameters(), lr=1e-2)
    real, fake = normal(5, 1, 8, 8), normal(5, 1, 8, 8)
    out = []
    for _ in range(7):
        optimizer.zero_grad()
        loss = nn.ReLU()(1.0 - critic(real)).mean() + nn.ReLU()(1.0 + critic(fake)).mean()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def gaussian_process():
    """The marginal likelihood of a kernel, maximised."""
    x = normal(12, 1)
    y = torch.sin(3 * x).squeeze(-1) + 0.1 * normal(12)
    log_l = torch.zeros(1, dtype=torch.double, requires_grad=True)
    log_s = torch.tensor([-2.0], dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.Adam([log_l, log_s], lr=0.1)
    out = []
    for _ in range(4):
        optimizer.zero_grad()
        K = torch.exp(-0.5 * torch.cdist(x, x).pow(2) / log_l.exp() ** 2) + log_s.exp() ** 2 * torch.eye(12, dtype=torch.double)
        L = torch.linalg.cholesky(K + 1e-6 * torch.eye(12))
        loss = -MultivariateNormal(torch.zeros(12, dtype=torch.double), scale_tril=L).log_prob(y)
        alpha = torch.cholesky_solve(y.unsqueeze(1), L)
        again = 0.5 * y @ alpha.squeeze(1) + L.diagonal().log().sum() + 6 * math.log(2 * math.pi)
        loss.backward()
        optimizer.step()
        out += [loss.item(), again.item()]
    return out


def mixture_of_experts():
    """A gate of the two best experts, and a loss that balances them."""

    class MoE(nn.Module):
        def __init__(self, dim, num_experts, k):
            super().__init__()
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(dim, 8), nn.SiLU(), nn.Linear(8, dim)) for _ in range(num_experts)])
            self.gate = nn.Linear(dim, num_experts, bias=False)
            self.k, self.num_experts = k, num_experts

        def forward(self, x):
            scores = self.gate(x)
            topk_values, topk_idx = torch.topk(scores, self.k, dim=-1)
            weights = F.softmax(topk_values, dim=-1)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                where_token, where_slot = torch.where(topk_idx == i)
                if where_token.numel() == 0:
                    continue
                out.index_add_(0, where_token, expert(x[where_token]) * weights[where_token, where_slot, None])
            load = F.one_hot(topk_idx, self.num_experts).double().sum(dim=1).mean(dim=0)
            aux = (load * F.softmax(scores, dim=-1).mean(dim=0)).sum() * self.num_experts
            return out, aux
    model = set_params(MoE(4, 3, 2))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x, y = normal(9, 4), normal(9, 4)
    out = []
    for _ in range(3):
        pred, aux = model(x)
        loss = F.mse_loss(pred, y) + 0.01 * aux
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out += [loss.item(), aux.item()]
    return out


PROGRAMS = (super_resolution, time_sequence_prediction, seq2seq_attention, translation_transformer, actor_critic, dqn,
            char_rnn_classification, simclr, speech_ctc, text_classification, sentiment_packed, wgan_gp, gcn,
            unet_segmentation, distillation, matrix_factorization, real_nvp, ppo, mini_gpt, maml, spectral_critic,
            gaussian_process, mixture_of_experts)
